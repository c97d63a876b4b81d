// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.Steps.results;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Steps of lookups, matches, attached caches and the care of blocks. */
final class CacheSteps {
  private CacheSteps() {}

  static void add(Steps steps) {
    steps.put("manager.lookup", in -> found(in.object("manager", Manager.class).lookup(
        in.object("namespace", Namespace.class), in.keys("keys"), lookup(in).parts(in.parts("parts")))));
    steps.put("cache.lookup", in -> found(in.object("cache", Cache.class).lookup(in.keys("keys"), lookup(in))));
    steps.put("match.items", CacheSteps::items);
    steps.put("match.blocks", CacheSteps::blocks);
    steps.put("cache.attach", CacheSteps::attach);
    steps.put("cache.store", in -> store(steps, in));
    steps.put("cache.load", in -> load(steps, in));
    care(steps);
  }

  private static LookupOptions lookup(Arguments in) {
    return new LookupOptions()
        .mode(LookupMode.of(in.integer("mode", 0)))
        .hostOnly(in.flag("host_only"))
        .noUse(in.flag("no_use"))
        .unitKeys(in.keys("unit_keys"))
        .askNodes(in.time("ask_nodes_ns", 0));
  }

  private static Map<String, Object> found(Match match) {
    return results("match", match.isEmpty() ? null : match, "n", (long) match.hits());
  }

  private static Map<String, Object> items(Arguments in) {
    Match match = in.object("match", Match.class);
    List<Object> rows = new ArrayList<>();
    for (MatchItem one : match.items(0, match.count())) {
      rows.add(results("tier", Steps.unsigned(one.tier()), "parts_needed", Steps.unsigned(one.partsNeeded()), "bytes",
          one.bytes(), "below_bytes", one.belowBytes(), "text", Steps.shown(one)));
    }
    return results("count", (long) match.count(), "units", (long) match.units(), "items", rows);
  }

  private static Map<String, Object> blocks(Arguments in) {
    int n = in.integer("n", 0);
    try (Call call = Call.begin()) {
      Struct out = call.memory(8L * n);
      Call.check(kvbm.kvbm_match_blocks(call.use(in.object("match", Match.class), "match"), in.number("part", 0),
          in.number("first"), n, out.address));
      List<Object> holds = PoolSteps.read(out, n);
      return results("blocks", holds, "present", holds.stream().filter(PoolSteps.Hold.class::isInstance).count());
    }
  }

  private static Map<String, Object> attach(Arguments in) {
    List<CachePart> parts = new ArrayList<>();
    for (Arguments part : in.objects("parts")) {
      List<Tensor> tensors = new ArrayList<>();
      for (Arguments one : part.objects("tensors")) {
        ByteBuffer memory = one.object("memory", ByteBuffer.class)
            .slice(one.integer("offset", 0), one.integer("bytes", 0));
        tensors.add(Tensor.of(memory, one.number("block_stride", 0), one.number("page_bytes", 0)));
        one.noneLeft();
      }
      parts.add(new CachePart(part.asPart(), Form.of(part.integer("form", 0)), tensors));
      part.noneLeft();
    }
    return results("cache", in.object("manager", Manager.class)
        .attach(in.object("namespace", Namespace.class), in.integer("n_blocks", 0), parts,
            MemoryKind.of(in.integer("memory", 0)), in.integer("device", 0)));
  }

  private static Map<String, Object> submitted(Steps steps, Arguments in, Operation operation) {
    steps.userData.put(operation, in.number("user_data", 0));
    return results("status", 0L, "operation", operation.libraryNumber(), "items", operation);
  }

  private static Map<String, Object> store(Steps steps, Arguments in) {
    Cache cache = in.object("cache", Cache.class);
    KeyArray keys = in.keys("keys");
    StoreOptions options = new StoreOptions().priority(Priority.of(in.integer("priority", 0))).parent(in.key("parent"))
        .unchained(in.flag("unchained")).positions(in.positions("positions"))
        .timeout(in.time("timeout_ns", Kvbm.FOREVER)).unitKeys(in.keys("unit_keys"));
    if (in.has("stream")) options.stream(in.number("stream"));
    if (in.has("queue")) {
      CompletionQueue queue = in.object("queue", CompletionQueue.class);
      return submitted(steps, in, cache.storeAsync(keys, in.integers("block_ids"), options, queue));
    }
    Status[] items = new Status[keys.size()];
    long status = cache.store(keys, in.integers("block_ids"), options.itemStatus(items)).number();
    return results("status", status, "items", items);
  }

  private static Map<String, Object> load(Steps steps, Arguments in) {
    Cache cache = in.object("cache", Cache.class);
    Match given = in.object("match", Match.class);
    Match match = given == null ? cache.lookup(KeyArray.of(List.of())) : given;
    int[] ids = in.integers("block_ids");
    LoadOptions options = new LoadOptions().firstKey(in.integer("first_key", 0)).anyPosition(in.flag("any_position"))
        .layers(in.integer("first_layer", 0), in.integer("n_layers", 0)).keepBelow(in.flag("keep_below"))
        .positions(in.positions("positions")).timeout(in.time("timeout_ns", Kvbm.FOREVER))
        .computeBlock(in.time("compute_block_ns", 0))
        .waitLayers(WaitLayers.of(in.integer("wait_layers", 0)));
    if (in.has("stream")) options.stream(in.number("stream"));
    if (in.has("queue")) {
      CompletionQueue queue = in.object("queue", CompletionQueue.class);
      return submitted(steps, in, cache.loadAsync(match, ids, options, queue));
    }
    Status[] items = new Status[cache.keysOf(cache.idsOfPart(ids))];
    long status = cache.load(match, ids, options.itemStatus(items)).number();
    return results("status", status, "items", items);
  }

  private static void care(Steps steps) {
    steps.put("manager.prefetch", in -> {
      Manager manager = in.object("manager", Manager.class);
      Namespace ns = in.object("namespace", Namespace.class);
      if (!in.has("queue"))
        return results("status", (long) manager.prefetch(ns, in.part("part"), in.keys("keys")).number());
      CompletionQueue queue = in.object("queue", CompletionQueue.class);
      steps.userData.put(
          manager.prefetchAsync(ns, in.part("part"), in.keys("keys"), queue), in.number("user_data", 0));
      return results("status", 0L);
    });
    steps.put("manager.offload", in -> {
      Manager manager = in.object("manager", Manager.class);
      Namespace ns = in.object("namespace", Namespace.class);
      int tier = in.integer("tier", 0);
      if (!in.has("queue")) {
        return results("status", (long) manager.offload(ns, in.part("part"), in.keys("keys"), tier).number());
      }
      CompletionQueue queue = in.object("queue", CompletionQueue.class);
      steps.userData.put(
          manager.offloadAsync(ns, in.part("part"), in.keys("keys"), tier, queue), in.number("user_data", 0));
      return results("status", 0L);
    });
    steps.put("manager.drop", in -> results("n", in.object("manager", Manager.class)
        .drop(in.object("namespace", Namespace.class), in.part("part"), in.keys("keys"))));
    steps.put("manager.hint", in -> {
      in.object("manager", Manager.class).hint(in.object("namespace", Namespace.class), in.part("part"),
          in.keys("keys"), Priority.of(in.integer("priority", 0)));
      return results();
    });
    steps.put("manager.pin", in -> {
      Pin pin = in.object("manager", Manager.class).pin(in.object("namespace", Namespace.class), in.part("part"),
          in.keys("keys"), in.number("owner"), in.time("timeout_ns", 0));
      return results("pin", Steps.decimal(pin.id()), "n", (long) pin.count());
    });
    steps.put("manager.unpin", in -> {
      in.object("manager", Manager.class).unpin(new Pin(in.number("pin"), 0));
      return results();
    });
    steps.put("manager.unpin_owner",
        in -> results("n", in.object("manager", Manager.class).unpinOwner(in.number("owner"))));
  }
}
