// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm.programs;

import io.github.kvbm.libkvbm.BlockArray;
import io.github.kvbm.libkvbm.BlockViews;
import io.github.kvbm.libkvbm.Cache;
import io.github.kvbm.libkvbm.CachePart;
import io.github.kvbm.libkvbm.Context;
import io.github.kvbm.libkvbm.Form;
import io.github.kvbm.libkvbm.KeyArray;
import io.github.kvbm.libkvbm.Kvbm;
import io.github.kvbm.libkvbm.Manager;
import io.github.kvbm.libkvbm.ManagerOptions;
import io.github.kvbm.libkvbm.Match;
import io.github.kvbm.libkvbm.Namespace;
import io.github.kvbm.libkvbm.NamespaceOptions;
import io.github.kvbm.libkvbm.Tensor;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.function.LongSupplier;

/** The cost of the calls that engines make most, as one line of JSON; medians in nanoseconds. */
public final class Bench {
  private static final int BATCH = 256;
  private static final int REGISTERED = 1024;
  private static final int MIB = 1 << 20;
  private static final int STORED = 16;

  /** The cache begins at a page in every language: copies to other addresses take another time. */
  private static final int PAGE = 4096;

  /** Calls until the compiler is done with a path, which an engine that runs for hours has long behind it. */
  private static final int COMPILED = 20_000;

  private Bench() {}

  public static void main(String[] arguments) {
    try (Context context = Context.create()) {
      long[] small = small(context);
      long[] large = large(context);
      System.out.printf("{\"language\":\"java\",\"lookup_256_ns\":%d,\"view_256_ns\":%d,\"store_1MiB_ns\":%d,"
          + "\"load_1MiB_ns\":%d}%n", small[0], small[1], large[0], large[1]);
    }
  }

  private static int[] tokens(int blocks) {
    int[] tokens = new int[blocks * 16];
    for (int i = 0; i < tokens.length; ++i) tokens[i] = i;
    return tokens;
  }

  /** Lookups and views of 256 blocks of 4 KiB. */
  private static long[] small(Context context) {
    ManagerOptions options = new ManagerOptions().blockBytes(4096).hostCapacityBytes(64L * MIB).tiers(List.of());
    try (Manager manager = Manager.create(context, options);
        Namespace ns = manager.namespace(new NamespaceOptions("bench"));
        BlockArray registered = manager.allocate(ns, REGISTERED)) {
      KeyArray all = ns.chain(tokens(REGISTERED), 16);
      registered.complete();
      registered.register(ns, all);
      KeyArray keys = all.slice(0, BATCH);
      long lookup = median(20_000, 2_000, () -> {
        long begin = System.nanoTime();
        int hits;
        try (Match match = manager.lookup(ns, keys)) {
          hits = match.hits();
        }
        long ns1 = System.nanoTime() - begin;
        if (hits != BATCH) throw new IllegalStateException(hits + " of 256 keys hit");
        return ns1;
      });
      try (Match match = manager.lookup(ns, keys); BlockArray held = match.blocks()) {
        ByteBuffer[] buffers = new ByteBuffer[BATCH];
        long view = median(20_000, 2_000, () -> {
          long begin = System.nanoTime();
          try (BlockViews views = held.views()) {
            for (int i = 0; i < BATCH; ++i) buffers[i] = views.get(i);
          }
          return System.nanoTime() - begin;
        });
        return new long[] {lookup, view};
      }
    }
  }

  /** Stores and loads of 16 blocks of 1 MiB. */
  private static long[] large(Context context) {
    ManagerOptions options = new ManagerOptions().blockBytes(MIB).hostCapacityBytes(64L * MIB).tiers(List.of());
    ByteBuffer memory = ByteBuffer.allocateDirect(32 * MIB + PAGE).alignedSlice(PAGE).slice(0, 32 * MIB);
    for (int i = 0; i < memory.capacity(); i += 8) memory.putLong(i, i * 0x9e3779b97f4a7c15L);
    try (Manager manager = Manager.create(context, options);
        Namespace ns = manager.namespace(new NamespaceOptions("bench"));
        Cache cache =
            manager.attach(ns, 32, List.of(new CachePart(null, Form.OPAQUE, List.of(Tensor.opaque(memory, MIB)))))) {
      KeyArray keys = ns.chain(tokens(STORED), 16);
      int[] ids = new int[STORED];
      for (int i = 0; i < STORED; ++i) ids[i] = i;
      // Compiled by calls that copy nothing: keys that are stored, and blocks that are skipped.
      for (int i = 0; i < COMPILED; ++i) cache.store(keys, ids);
      try (Match match = cache.lookup(keys)) {
        int[] none = new int[STORED];
        Arrays.fill(none, Kvbm.NO_BLOCK);
        for (int i = 0; i < COMPILED; ++i) cache.load(match, none);
      }
      long store = median(20, 200, () -> {
        manager.drop(ns, null, keys);
        long begin = System.nanoTime();
        cache.store(keys, ids);
        return System.nanoTime() - begin;
      });
      try (Match match = cache.lookup(keys)) {
        if (match.hits() != STORED) throw new IllegalStateException(match.hits() + " of 16 keys hit");
        long load = median(20, 200, () -> {
          long begin = System.nanoTime();
          cache.load(match, ids);
          return System.nanoTime() - begin;
        });
        return new long[] {store / STORED, load / STORED};
      }
    }
  }

  /** The median of what calls say they took, after `warm` calls for the compiler. */
  private static long median(int warm, int n, LongSupplier call) {
    for (int i = 0; i < warm; ++i) call.getAsLong();
    long[] took = new long[n];
    for (int i = 0; i < n; ++i) took[i] = call.getAsLong();
    Arrays.sort(took);
    return took[n / 2];
  }
}
