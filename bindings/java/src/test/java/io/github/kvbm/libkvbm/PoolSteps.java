// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.Steps.results;
import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Steps of managers and of their blocks. Scenarios use single holds, also ended ones: those are of the raw layer. */
final class PoolSteps {
  /** A hold as scenarios name it. */
  record Hold(long value) {}

  private PoolSteps() {}

  static void add(Steps steps) {
    steps.put("manager.create", PoolSteps::create);
    steps.put("manager.reset", in -> {
      in.object("manager", Manager.class).reset();
      return results();
    });
    steps.put("manager.flush", in -> results("status",
        (long) in.object("manager", Manager.class).flush(in.time("timeout_ns", 0)).number()));
    steps.put("manager.flush_durable", in -> results("status",
        (long) in.object("manager", Manager.class).flushDurable(in.time("timeout_ns", 0)).number()));
    steps.put("manager.allocate", PoolSteps::allocate);
    steps.put("manager.complete", in -> {
      try (Call call = Call.begin()) {
        Struct blocks = holds(call, in);
        long bytes = in.has("bytes") ? call.longs(in.numbers("bytes")) : 0;
        Call.check(kvbm.kvbm_manager_complete(manager(call, in), blocks.address, in.list("blocks").size(), bytes));
        return results();
      }
    });
    steps.put("manager.register", PoolSteps::register);
    steps.put("block.view", PoolSteps::view);
    steps.put("block.clone", in -> again(in, kvbm::kvbm_block_clone));
    steps.put("block.downgrade", in -> again(in, kvbm::kvbm_block_downgrade));
    steps.put("block.upgrade", in -> again(in, kvbm::kvbm_block_upgrade));
    steps.put("block.release", in -> {
      try (Call call = Call.begin()) {
        Struct blocks = holds(call, in);
        Call.check(kvbm.kvbm_block_release(manager(call, in), blocks.address, in.list("blocks").size()));
        return results();
      }
    });
  }

  private static Map<String, Object> create(Arguments in) {
    ManagerOptions options = new ManagerOptions().blockBytes(in.number("block_bytes", 0))
        .hostCapacityBytes(in.number("host_capacity_bytes", 0)).hostFile(in.text("host_file"))
        .policy(in.text("policy"));
    long flags = in.number("flags", 0);
    if ((flags & ~KVBM_MANAGER_SHARE) != 0) throw new AssertionError("flags " + flags);
    options.share(flags != 0);
    if (in.has("tiers")) {
      List<Tier> tiers = new ArrayList<>();
      for (Arguments one : in.objects("tiers")) {
        String path = one.text("path");
        String url = one.text("url");
        long capacity = one.number("capacity_bytes", 0);
        tiers.add((url == null ? Tier.disk(path, capacity) : Tier.store(url).capacity(capacity))
            .bandwidth(one.number("write_bytes_per_s", 0), one.number("read_bytes_per_s", 0))
            .admission(Admission.of(one.integer("admission", 0)), one.integer("admission_uses", 0))
            .codec(one.text("codec"), one.integer("codec_goal", 0)));
        one.noneLeft();
      }
      options.tiers(tiers);
    }
    return results("manager", Manager.create(in.object("context", Context.class), options));
  }

  private static long manager(Call call, Arguments in) {
    return call.use(in.object("manager", Manager.class), "manager");
  }

  private static Struct holds(Call call, Arguments in) {
    List<?> list = in.list("blocks");
    long[] values = new long[list.size()];
    for (int i = 0; i < values.length; ++i) values[i] = list.get(i) instanceof Hold hold ? hold.value() : 0;
    return call.longs(values, values.length);
  }

  static List<Object> read(Struct out, int n) {
    List<Object> holds = new ArrayList<>();
    for (int i = 0; i < n; ++i) {
      long value = out.getLong(8 * i);
      holds.add(value == 0 ? (Object) 0L : new Hold(value));
    }
    return holds;
  }

  private static Map<String, Object> allocate(Arguments in) {
    try (Call call = Call.begin()) {
      int n = in.integer("n", 0);
      // The idiomatic layer has its own refusals; numbers as holds do not pass it.
      if (n < 0) in.object("manager", Manager.class).allocate(in.object("namespace", Namespace.class), n);
      Struct blocks = call.memory(8L * n);
      Struct evicted = call.memory(64L * SIZEOF_key);
      Struct count = call.memory(8);
      Call.check(kvbm.kvbm_manager_allocate(manager(call, in),
          call.use(in.object("namespace", Namespace.class), "namespace"), n, blocks.address, evicted.address, 64,
          count.address));
      List<Object> keys = new ArrayList<>();
      for (int i = 0; i < Math.min(64, count.getLong(0)); ++i) {
        keys.add(Key.of(evicted.bytes(i * SIZEOF_key, 16)).toString());
      }
      return results("blocks", read(blocks, n), "n_evicted", count.getLong(0), "evicted", keys);
    }
  }

  private static Map<String, Object> register(Arguments in) {
    int n = in.list("blocks").size();
    Status[] status = new Status[n];
    RegisterOptions options = new RegisterOptions()
                                  .duplicates(Duplicates.of(in.integer("duplicates", 0)))
                                  .part(in.part("part"))
                                  .parent(in.key("parent"))
                                  .unchained(in.flag("unchained"))
                                  .priority(Priority.of(in.integer("priority", 0)))
                                  .positions(in.positions("positions"))
                                  .itemStatus(status);
    try (Call call = Call.begin()) {
      Struct blocks = holds(call, in);
      ItemStatus items = new ItemStatus(call, status, n);
      Call.check(kvbm.kvbm_manager_register(manager(call, in),
          call.use(in.object("namespace", Namespace.class), "namespace"), blocks.address, in.keys("keys").address(call),
          n, options.write(call, items, n).address));
      items.read();
      List<Object> statuses = new ArrayList<>();
      for (Status one : status) statuses.add((long) one.number());
      return results("blocks", read(blocks, n), "items", statuses);
    }
  }

  private static Map<String, Object> view(Arguments in) {
    try (Call call = Call.begin()) {
      int n = in.list("blocks").size();
      Struct rows = call.memory((long) SIZEOF_view * n);
      Call.check(kvbm.kvbm_block_view(manager(call, in), holds(call, in).address, n, rows.address));
      List<Object> bytes = new ArrayList<>();
      List<Object> slots = new ArrayList<>();
      for (int i = 0; i < n; ++i) {
        int at = i * SIZEOF_view;
        ByteBuffer memory = kvbm.kvbm_java_buffer_at(rows.getLong(at + view_data), rows.getLong(at + view_bytes));
        for (int j = 0; in.has("fill") && j < memory.capacity(); ++j) {
          memory.put(j, CoreSteps.pattern(in.integer("fill", 0) + i, j));
        }
        for (int j = 0; in.has("compare") && j < memory.capacity(); ++j) {
          if (memory.get(j) != CoreSteps.pattern(in.integer("compare", 0) + i, j)) {
            throw new AssertionError("byte " + j + " of block " + i);
          }
        }
        bytes.add((long) memory.capacity());
        slots.add(rows.getLong(at + view_slot));
      }
      return results("bytes", bytes, "slots", slots);
    }
  }

  private interface Again {
    int call(long manager, long blocks, long n, long out);
  }

  private static Map<String, Object> again(Arguments in, Again how) {
    try (Call call = Call.begin()) {
      int n = in.list("blocks").size();
      Struct out = call.memory(8L * n);
      Call.check(how.call(manager(call, in), holds(call, in).address, n, out.address));
      List<Object> holds = read(out, n);
      return results("blocks", holds, "present", holds.stream().filter(Hold.class::isInstance).count());
    }
  }
}
