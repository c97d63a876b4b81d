// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.nio.ByteBuffer;
import java.util.List;

/** A small manager and what most tests need of it. */
final class World implements AutoCloseable {
  static final int BLOCK = 4096;

  final Context context;
  final Manager manager;
  final Namespace ns;

  World() {
    this(64);
  }

  World(int blocks) {
    context = Context.create(new ContextOptions().threads(1));
    long capacity = (long) blocks * (BLOCK + 4096);
    manager = Manager.create(
        context, new ManagerOptions().blockBytes(BLOCK).hostCapacityBytes(capacity).tiers(List.of()));
    ns = manager.namespace(new NamespaceOptions("a model"));
  }

  /** Keys of n blocks of a prompt of four tokens a block. */
  KeyArray keys(int n, int seed) {
    int[] tokens = new int[4 * n];
    for (int i = 0; i < tokens.length; ++i) tokens[i] = seed + i;
    return ns.chain(tokens, 4);
  }

  /** An attached opaque cache over this memory. */
  Cache cache(ByteBuffer memory) {
    CachePart part = new CachePart(null, Form.OPAQUE, List.of(Tensor.opaque(memory, BLOCK)));
    return manager.attach(ns, memory.remaining() / BLOCK, List.of(part));
  }

  /** n registered blocks, of which block i is full of the byte i; the caller's holds are returned. */
  BlockArray registered(KeyArray keys) {
    BlockArray blocks = manager.allocate(ns, keys.size());
    try (BlockViews views = blocks.views()) {
      for (int i = 0; i < keys.size(); ++i) fill(views.get(i), i);
    }
    blocks.complete();
    blocks.register(ns, keys);
    return blocks;
  }

  static void fill(ByteBuffer memory, int value) {
    for (int i = 0; i < memory.capacity(); ++i) memory.put(i, (byte) value);
  }

  static boolean isFull(ByteBuffer memory, int value) {
    for (int i = 0; i < memory.capacity(); ++i) {
      if (memory.get(i) != (byte) value) return false;
    }
    return true;
  }

  static ByteBuffer memory(int blocks) {
    return ByteBuffer.allocateDirect(blocks * BLOCK);
  }

  @Override
  public void close() {
    ns.close();
    manager.close();
    context.close();
  }
}
