// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm.programs;

import io.github.kvbm.libkvbm.Admission;
import io.github.kvbm.libkvbm.BlockArray;
import io.github.kvbm.libkvbm.BlockViews;
import io.github.kvbm.libkvbm.Context;
import io.github.kvbm.libkvbm.ContextOptions;
import io.github.kvbm.libkvbm.KeyArray;
import io.github.kvbm.libkvbm.KvbmException;
import io.github.kvbm.libkvbm.LookupOptions;
import io.github.kvbm.libkvbm.Manager;
import io.github.kvbm.libkvbm.ManagerOptions;
import io.github.kvbm.libkvbm.Match;
import io.github.kvbm.libkvbm.Namespace;
import io.github.kvbm.libkvbm.NamespaceOptions;
import io.github.kvbm.libkvbm.Tier;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;

/** Stores blocks that every language makes alike, or fetches and verifies them; the arguments are in the README. */
public final class Relay {
  private static final int BLOCK_BYTES = 65536;
  private static final int BLOCK_TOKENS = 16;
  private static final long SECOND_NS = 1_000_000_000L;

  private final Manager manager;
  private final Namespace ns;
  private final KeyArray keys;
  private final int seed;
  private final int blocks;

  private Relay(Manager manager, Namespace ns, int seed, int blocks) {
    this.manager = manager;
    this.ns = ns;
    this.seed = seed;
    this.blocks = blocks;
    int[] tokens = new int[BLOCK_TOKENS * blocks];
    for (int i = 0; i < tokens.length; ++i) tokens[i] = seed * 1000003 + i;
    keys = ns.chain(tokens, BLOCK_TOKENS);
  }

  public static void main(String[] arguments) throws Exception {
    String what = "";
    int seed = 0;
    int blocks = 0;
    String tier = null;
    ContextOptions settings = new ContextOptions();
    for (int i = 0; i < arguments.length; ++i) {
      switch (arguments[i]) {
        case "--seed" -> seed = Integer.parseUnsignedInt(arguments[++i]);
        case "--blocks" -> blocks = Integer.parseInt(arguments[++i]);
        case "--tier" -> tier = arguments[++i];
        case "store", "fetch" -> what = arguments[i];
        default -> {
          int equals = arguments[i].indexOf('=');
          if (equals < 0) throw new IllegalArgumentException("neither an option nor KEY=VALUE: " + arguments[i]);
          settings.setting(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
        }
      }
    }
    ManagerOptions options = new ManagerOptions().blockBytes(BLOCK_BYTES);
    if (tier != null) options.tiers(List.of(Tier.disk(tier, 256L << 20).admission(Admission.ALL, 0)));
    byte[] secret = new byte[32];
    Arrays.fill(secret, (byte) 7);
    boolean good;
    try (Context context = Context.create(settings);
        Manager manager = Manager.create(context, options);
        Namespace ns = manager.namespace(new NamespaceOptions("relay-model").tenant("relay").secret(secret))) {
      Relay relay = new Relay(manager, ns, seed, blocks);
      good = switch (what) {
        case "store" -> relay.store();
        case "fetch" -> relay.fetch();
        default -> throw new IllegalArgumentException("neither store nor fetch");
      };
    } catch (KvbmException e) {
      System.err.println(e.getMessage());
      good = false;
    }
    System.exit(good ? 0 : 1);
  }

  private byte expected(int block, int at) {
    return (byte) (seed + 31 * block + 7 * at + (at >> 8));
  }

  private boolean store() throws IOException {
    try (BlockArray held = manager.allocate(ns, blocks)) {
      try (BlockViews views = held.views()) {
        for (int i = 0; i < blocks; ++i) {
          ByteBuffer view = views.get(i);
          for (int j = 0; j < BLOCK_BYTES; ++j) view.put(j, expected(i, j));
        }
      }
      held.complete();
      held.register(ns, keys);
      manager.flush(Duration.ofSeconds(30));
      System.out.println("stored " + blocks);
      String address = manager.nodeAddress();
      if (!address.isEmpty()) System.out.println("node " + address);
      System.out.println("ready");
      System.out.flush();
      System.in.readAllBytes();
    }
    return true;
  }

  private boolean fetch() throws InterruptedException {
    long end = System.nanoTime() + 10 * SECOND_NS;
    for (;;) {
      try (Match match = manager.lookup(ns, keys, new LookupOptions().askNodes(Duration.ofSeconds(2)))) {
        if (match.hits() == blocks || System.nanoTime() > end) break;
      }
      Thread.sleep(20);
    }
    manager.prefetch(ns, null, keys);
    int verified = 0;
    try (Match match = manager.lookup(ns, keys); BlockArray held = match.blocks(); BlockViews views = held.views()) {
      for (int i = 0; i < views.size(); ++i) {
        if (views.get(i) != null && isRight(i, views.get(i))) ++verified;
      }
    }
    System.out.println("verified " + verified + " of " + blocks);
    return verified == blocks;
  }

  private boolean isRight(int block, ByteBuffer view) {
    if (view.capacity() != BLOCK_BYTES) return false;
    for (int j = 0; j < BLOCK_BYTES; ++j) {
      if (view.get(j) != expected(block, j)) return false;
    }
    return true;
  }
}
