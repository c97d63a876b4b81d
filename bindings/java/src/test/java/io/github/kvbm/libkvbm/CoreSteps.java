// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.Steps.results;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/** Steps of the runner itself, and of contexts, queues, geometry, namespaces and keys. */
final class CoreSteps {
  private CoreSteps() {}

  static void add(Steps steps) {
    runner(steps);
    queues(steps);
    namespaces(steps);
    keys(steps);
    steps.put("context.create", in -> {
      ContextOptions options = new ContextOptions();
      options.configFile(in.text("config_file")).threads(in.integer("threads", 0));
      if (in.has("settings")) {
        ((Map<?, ?>) in.get("settings")).forEach((key, value) -> options.setting((String) key, (String) value));
      }
      return results("context", Context.create(options));
    });
    steps.put("context.config", in -> results("text", in.object("context", Context.class).config()));
    steps.put("config.reference", in -> results("text", Kvbm.configReference()));
    steps.put("geometry.create", CoreSteps::geometry);
    steps.put("geometry.record_bytes", in -> results("bytes",
        in.object("geometry", Geometry.class).recordBytes(in.integer("component", 0), in.shard("shard"))));
  }

  private static void runner(Steps steps) {
    steps.put("release", in -> {
      Object it = in.get("it");
      if (it instanceof AutoCloseable) ((AutoCloseable) it).close();
      return results();
    });
    steps.put("memory.create", in -> {
      int bytes = in.integer("bytes", 0);
      return results("memory", ByteBuffer.allocateDirect(bytes + 64).alignedSlice(64).slice(0, bytes));
    });
    steps.put("memory.fill", in -> rows(in, (memory, at, n, seed) -> {
      for (int j = 0; j < n; ++j) memory.put(at + j, pattern(seed, j));
    }));
    steps.put("memory.compare", in -> rows(in, (memory, at, n, seed) -> {
      for (int j = 0; j < n; ++j) {
        if (memory.get(at + j) != pattern(seed, j)) throw new AssertionError("byte " + j + " of row " + seed);
      }
    }));
    steps.put("memory.clear", in -> {
      ByteBuffer memory = in.object("memory", ByteBuffer.class);
      byte value = (byte) in.number("value", 0);
      for (int i = 0; i < memory.capacity(); ++i) memory.put(i, value);
      return results();
    });
    steps.put("file.write", in -> {
      Files.writeString(Path.of(in.text("path")), in.text("text"));
      return results();
    });
    steps.put("items.read", in -> {
      Object items = in.get("items");
      Status[] statuses = items instanceof Operation ? ((Operation) items).itemStatus() : (Status[]) items;
      List<Object> out = new ArrayList<>();
      for (Status status : statuses) out.add((long) status.number());
      return results("items", out, "text", Steps.shown(List.of(statuses)));
    });
    steps.put("show", in -> results("text", in.get("it").toString()));
    steps.put("status.name", in -> {
      int status = in.integer("status", 0);
      return results(
          "name", kvbm.kvbm_status_name(status), "text", kvbm.kvbm_status_text(status), "band", band(status));
    });
    steps.put("version", in -> results("number", (long) Kvbm.version(), "text", Kvbm.versionString()));
  }

  private static long band(int status) {
    if (status >= 0) return 0;
    KvbmException e = KvbmException.of(status, "");
    List<Class<?>> classes = List.of(CallerException.class, NoRoomException.class, PeerException.class,
        MissException.class, UnavailableException.class, InternalException.class);
    return -1 - classes.indexOf(e.getClass());
  }

  /** Byte j of the pattern of a seed. */
  static byte pattern(int seed, int j) {
    int x = seed * 1000003 + j;
    x ^= x >>> 15;
    x *= (int) 2246822519L;
    x ^= x >>> 13;
    return (byte) x;
  }

  private interface Row {
    void at(ByteBuffer memory, int at, int bytes, int seed);
  }

  private static Map<String, Object> rows(Arguments in, Row row) {
    ByteBuffer memory = in.object("memory", ByteBuffer.class);
    List<?> dims = in.has("dims") ? in.list("dims") : List.of();
    int rows = 1;
    for (Object dim : dims) rows *= (int) Arguments.number(((List<?>) dim).get(0));
    for (int r = 0; r < rows; ++r) {
      long at = in.number("offset", 0);
      int rest = r;
      for (int d = dims.size() - 1; d >= 0; --d) {
        int count = (int) Arguments.number(((List<?>) dims.get(d)).get(0));
        at += rest % count * Arguments.number(((List<?>) dims.get(d)).get(1));
        rest /= count;
      }
      row.at(memory, (int) at, in.integer("bytes", 0), in.integer("seed", 0) + r);
    }
    return results();
  }

  private static void queues(Steps steps) {
    steps.put("queue.create", in -> results("queue",
        CompletionQueue.polled(in.object("context", Context.class), in.integer("depth", 0))));
    steps.put("queue.wait", in -> {
      CompletionQueue queue = in.object("queue", CompletionQueue.class);
      int n = in.integer("n", 0);
      long timeout = in.number("timeout_ns");
      long end = System.nanoTime() + timeout;
      List<Object> out = new ArrayList<>();
      do {
        long left = timeout == 0 ? 0 : Math.max(1, end - System.nanoTime());
        for (Completion one : queue.await(n - out.size(), Duration.ofNanos(left))) out.add(completion(steps, one));
      } while (out.size() < n && timeout != 0 && System.nanoTime() < end);
      return results("completions", out);
    });
    steps.put("queue.cancel", in -> {
      try (Call call = Call.begin()) {
        long queue = call.use(in.object("queue", CompletionQueue.class), "queue");
        Call.check(kvbm.kvbm_queue_cancel(queue, in.number("operation")));
      }
      return results();
    });
    steps.put("queue.events", in -> {
      CompletionQueue queue = in.object("queue", CompletionQueue.class);
      int n = in.integer("n", 0);
      long end = System.nanoTime() + in.number("timeout_ns");
      List<Object> out = new ArrayList<>();
      for (;;) {
        for (BlockEvent e : queue.pollEvents(n - out.size())) {
          out.add(results("sequence", e.sequence(), "kind", (long) e.kind().number(), "tier", Steps.unsigned(e.tier()),
              "namespace_id", e.namespaceId().toString(), "key", e.key().toString(), "parent", e.parent().toString(),
              "component", Steps.unsigned(e.component()), "text", Steps.shown(e)));
        }
        if (out.size() >= n || System.nanoTime() > end) return results("events", out);
        Thread.sleep(1);
      }
    });
  }

  private static Map<String, Object> completion(Steps steps, Completion one) {
    long user = 0;
    for (Map.Entry<Operation, Long> entry : steps.userData.entrySet()) {
      if (entry.getKey().id() == one.id()) user = entry.getValue();
    }
    return results("user_data", user, "operation", Steps.decimal(one.operation()), "op", (long) one.op().number(),
        "status", (long) one.status().number(), "items_done", one.itemsDone(), "items", one.items(), "bytes",
        one.bytes(), "text", Steps.shown(one));
  }

  private static Map<String, Object> geometry(Arguments in) {
    List<Component> components = new ArrayList<>();
    for (Arguments one : in.objects("components")) {
      components.add(new Component(ComponentKind.of(one.integer("kind", 0)), Element.of(one.integer("element", 0)),
          one.integer("layers", 0), one.integer("heads", 0), one.integer("head_dim", 0),
          one.integer("window_tokens", 0), one.number("state_bytes", 0)));
      one.noneLeft();
    }
    Geometry geometry = Geometry.create(in.integer("tokens_per_block", 0), in.integer("units", 0), components);
    return results("geometry", geometry, "fingerprint", HexFormat.of().toHexDigits(geometry.fingerprint()));
  }

  private static void namespaces(Steps steps) {
    steps.put("namespace.open", in -> {
      NamespaceOptions options = new NamespaceOptions(in.text("model")).tenant(in.text("tenant"))
          .adapter(in.text("adapter")).geometry(in.object("geometry", Geometry.class)).secret(in.hex("secret"))
          .epoch(in.number("epoch", 0)).quota(in.number("quota_bytes", 0), QuotaMode.of(in.integer("quota_mode", 0)))
          .codec(in.text("codec")).allowLossy(in.integer("allow_lossy", 0) != 0)
          .weakHashes(in.integer("weak_hashes", 0) != 0);
      Namespace ns = in.object("manager", Manager.class).namespace(options);
      return results("namespace", ns, "id", ns.id().toString());
    });
    steps.put("namespace.id", in -> results("id", in.object("namespace", Namespace.class).id().toString()));
    steps.put("namespace.invalidate", in -> {
      in.object("namespace", Namespace.class).invalidate();
      return results();
    });
    steps.put("namespace.reset", in -> {
      in.object("namespace", Namespace.class).reset();
      return results();
    });
    steps.put("namespace.set_quota", in -> {
      in.object("namespace", Namespace.class)
          .setQuota(in.number("quota_bytes"), QuotaMode.of(in.integer("quota_mode", 0)));
      return results();
    });
  }

  private static List<byte[]> extras(Arguments in) {
    if (!in.has("extras")) return null;
    List<byte[]> out = new ArrayList<>();
    for (Object one : in.list("extras")) out.add(HexFormat.of().parseHex((String) one));
    return out;
  }

  private static void keys(Steps steps) {
    steps.put("key.chain", in -> {
      KeyArray keys = in.object("namespace", Namespace.class)
          .chain(in.key("previous"), in.tokens("tokens"), in.integer("block_tokens", 0), extras(in));
      return results("keys", Steps.hex(keys), "n", (long) keys.size());
    });
    steps.put("key.content", in -> {
      KeyArray keys = in.object("namespace", Namespace.class)
          .content(in.tokens("tokens"), in.integer("block_tokens", 0), extras(in));
      return results("keys", Steps.hex(keys), "n", (long) keys.size());
    });
    steps.put("key.from_hashes", in -> results("keys", Steps.hex(in.object("namespace", Namespace.class)
        .fromHashes(in.hex("hashes"), in.integer("hash_bytes", 0)))));
  }
}
