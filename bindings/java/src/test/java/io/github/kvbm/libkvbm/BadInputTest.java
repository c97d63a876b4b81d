// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Mistakes of a program are exceptions, and never the end of the JVM. */
@Timeout(60)
class BadInputTest {
  @Test
  void closedObjectsAreRefused() {
    World world = new World();
    KeyArray keys = world.keys(2, 1);
    Cache cache = world.cache(World.memory(4));
    BlockArray blocks = world.registered(keys);
    BlockViews views = blocks.views();
    Match match = cache.lookup(keys);
    CompletionQueue queue = CompletionQueue.create(world.context, 4);
    for (AutoCloseable one : List.of(queue, match, views, blocks, cache, world)) {
      for (int i = 0; i < 2; ++i) {
        try {
          one.close();
        } catch (Exception e) {
          throw new AssertionError(e);
        }
      }
    }
    assertTrue(match.isClosed() && queue.isClosed() && world.manager.isClosed());
    assertThrows(IllegalStateException.class, () -> match.items(0, 1));
    assertThrows(IllegalStateException.class, match::blocks);
    assertThrows(IllegalStateException.class, () -> cache.lookup(keys));
    assertThrows(IllegalStateException.class, () -> cache.store(keys, new int[2]));
    assertThrows(IllegalStateException.class, () -> cache.load(match, new int[2]));
    assertThrows(IllegalStateException.class, blocks::views);
    assertThrows(IllegalStateException.class, blocks::complete);
    assertThrows(IllegalStateException.class, blocks::duplicate);
    assertThrows(IllegalStateException.class, () -> blocks.take(0, 1));
    assertThrows(IllegalStateException.class, () -> views.get(0));
    assertThrows(IllegalStateException.class, () -> world.manager.lookup(world.ns, keys));
    assertThrows(IllegalStateException.class, () -> world.manager.allocate(world.ns, 1));
    assertThrows(IllegalStateException.class, () -> world.keys(1, 1));
    assertThrows(IllegalStateException.class, () -> world.context.config());
    assertThrows(IllegalStateException.class, queue::fd);
    assertThrows(IllegalStateException.class, () -> queue.pollEvents(1));
    assertThrows(IllegalStateException.class, () -> Manager.create(world.context));
  }

  @Test
  void nullIsRefused() {
    try (World world = new World(); Cache cache = world.cache(World.memory(4))) {
      KeyArray keys = world.keys(1, 1);
      assertThrows(NullPointerException.class, () -> Manager.create(null));
      assertThrows(NullPointerException.class, () -> CompletionQueue.create(null, 1));
      assertThrows(NullPointerException.class, () -> world.manager.lookup(null, keys));
      assertThrows(NullPointerException.class, () -> world.manager.lookup(world.ns, null));
      assertThrows(NullPointerException.class, () -> world.manager.allocate(null, 1));
      assertThrows(NullPointerException.class, () -> world.manager.prefetch(world.ns, null, null));
      assertThrows(NullPointerException.class, () -> world.manager.namespace(null));
      assertThrows(NullPointerException.class, () -> cache.store(keys, null));
      assertThrows(NullPointerException.class, () -> cache.load(null, new int[1]));
      assertThrows(NullPointerException.class, () -> cache.storeAsync(keys, new int[1], null, null));
      assertThrows(NullPointerException.class, () -> world.ns.chain(null, 4));
      assertThrows(NullPointerException.class, () -> Tensor.opaque(null, 1));
      assertThrows(NullPointerException.class, () -> Offer.open(null, RequestId.random(), new int[1], null, null));
      assertThrows(NullPointerException.class, () -> world.manager.attach(null, 1, List.of()));
      CallerException e = assertThrows(
          CallerException.class, () -> world.manager.namespace(new NamespaceOptions(null)));
      assertEquals(Status.INVALID, e.status());
    }
  }

  @Test
  void memoryThatCannotBeUsedIsRefused() {
    try (World world = new World()) {
      assertThrows(IllegalArgumentException.class, () -> Tensor.opaque(ByteBuffer.allocate(4096), 4096));
      assertThrows(
          IllegalArgumentException.class, () -> Tensor.opaque(World.memory(1).asReadOnlyBuffer(), World.BLOCK));
      assertThrows(IllegalArgumentException.class, () -> KeyArray.wrap(ByteBuffer.allocate(16)));
      assertThrows(IllegalArgumentException.class, () -> KeyArray.wrap(ByteBuffer.allocateDirect(17)));
      assertThrows(
          IllegalArgumentException.class, () -> world.ns.chain(null, ByteBuffer.allocateDirect(15), 4, null));
      assertThrows(IllegalArgumentException.class, () -> world.ns.chain(null, ByteBuffer.allocate(16), 4, null));
      // A tensor that is smaller than its blocks.
      CachePart part = new CachePart(null, Form.OPAQUE, List.of(Tensor.opaque(World.memory(2), World.BLOCK)));
      CallerException e = assertThrows(CallerException.class, () -> world.manager.attach(world.ns, 3, List.of(part)));
      assertTrue(e.getMessage().length() > "KVBM_ERR_INVALID: ".length());
    }
  }

  @Test
  void arraysThatDoNotAgreeAreRefused() {
    try (World world = new World(); Cache cache = world.cache(World.memory(4));
        BlockArray blocks = world.manager.allocate(world.ns, 2)) {
      KeyArray keys = world.keys(3, 1);
      assertThrows(IllegalArgumentException.class, () -> cache.store(keys, new int[2]));
      assertThrows(IllegalArgumentException.class,
          () -> cache.store(keys, new int[3], new StoreOptions().itemStatus(new Status[1])));
      assertThrows(IllegalArgumentException.class,
          () -> cache.store(keys, new int[3], new StoreOptions().positions(List.of(new Position(0, 0, 0)))));
      assertThrows(IllegalArgumentException.class,
          () -> cache.store(keys, new int[3], new StoreOptions().unitKeys(world.keys(1, 1))));
      assertThrows(IllegalArgumentException.class, () -> blocks.register(world.ns, keys));
      assertThrows(IllegalArgumentException.class, () -> blocks.complete(new long[1]));
      assertThrows(
          IllegalArgumentException.class, () -> world.ns.chain(null, new int[8], 4, Arrays.asList(new byte[1])));
      assertThrows(CallerException.class, () -> world.manager.locate(world.ns, keys, new int[] {1}, null, null));
      assertThrows(IndexOutOfBoundsException.class, () -> keys.slice(2, 4));
      assertThrows(IndexOutOfBoundsException.class, () -> keys.get(-1));
      assertThrows(IllegalArgumentException.class, () -> Key.of(new byte[15]));
      assertThrows(IllegalArgumentException.class, () -> new NamespaceOptions("m").secret(new byte[31]));
    }
  }

  @Test
  void rangesOutsideAMatchAreRefused() {
    try (World world = new World()) {
      KeyArray keys = world.keys(3, 1);
      world.registered(keys).close();
      try (Match match = world.manager.lookup(world.ns, keys);
          Match none = world.manager.lookup(world.ns, world.keys(1, 99))) {
        assertThrows(IndexOutOfBoundsException.class, () -> match.items(0, 4));
        assertThrows(IndexOutOfBoundsException.class, () -> match.items(-1, 1));
        assertThrows(IndexOutOfBoundsException.class, () -> match.blocks(0, 3, 1));
        assertThrows(IndexOutOfBoundsException.class, () -> match.blocks(0, Integer.MAX_VALUE, Integer.MAX_VALUE));
        assertThrows(CallerException.class, () -> match.blocks(7, 0, 1));
        assertEquals(0, none.hits());
        assertEquals(0, none.count());
        assertEquals(0, none.units());
        assertEquals(0, none.blocks().size());
      }
    }
  }

  @Test
  void statesAreKept() {
    try (World world = new World(); BlockArray blocks = world.manager.allocate(world.ns, 1)) {
      CallerException e = assertThrows(CallerException.class, () -> blocks.register(world.ns, world.keys(1, 1)));
      assertEquals(Status.STATE, e.status());
      blocks.complete();
      assertThrows(CallerException.class, blocks::complete);
      assertThrows(CallerException.class, blocks::upgrade);
    }
  }

  @Test
  void anotherManagersThingsAreForeign() {
    try (World one = new World(); World other = new World()) {
      CallerException e = assertThrows(CallerException.class, () -> one.manager.allocate(other.ns, 1));
      assertEquals(Status.FOREIGN, e.status());
    }
  }

  @Test
  void sizesThatCannotBeAreRefused() {
    try (World world = new World()) {
      assertThrows(IllegalArgumentException.class, () -> world.manager.allocate(world.ns, -1));
      assertThrows(CallerException.class, () -> world.ns.chain(new int[4], 0));
      assertThrows(CallerException.class, () -> world.ns.fromHashes(new byte[130], 65));
      assertThrows(IllegalArgumentException.class, () -> world.ns.fromHashes(new byte[3], 2));
      CallerException weak = assertThrows(CallerException.class, () -> world.ns.fromHashes(new byte[30], 15));
      assertTrue(weak.getMessage().contains("weakHashes"), weak.getMessage());
      assertThrows(IllegalArgumentException.class, () -> new Shard(0, 70_000, 0, 0, false));
      assertThrows(CallerException.class, () -> CompletionQueue.create(world.context, 0));
      assertThrows(IllegalArgumentException.class, () -> world.manager.scan().next(0));
      assertThrows(CallerException.class, () -> Geometry.create(0, 1, List.of()));
      assertThrows(IllegalArgumentException.class, () -> world.manager.namespace(new NamespaceOptions("a\0b")));
    }
  }

  @Test
  void aWrongOptionIsNamed() {
    CallerException e = assertThrows(
        CallerException.class, () -> Context.create(new ContextOptions().setting("host.capacty", "1GiB")));
    assertEquals(Status.CONFIG, e.status());
    assertTrue(e.getMessage().contains("host.capacity"), e.getMessage());
  }
}
