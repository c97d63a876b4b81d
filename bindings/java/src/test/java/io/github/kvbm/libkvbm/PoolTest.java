// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.ReadOnlyBufferException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The life of blocks that the manager owns. */
class PoolTest {
  @Test
  void whatWasWrittenIsFoundByItsKeysAndSeenThroughViews() {
    try (World world = new World()) {
      KeyArray keys = world.keys(5, 1);
      world.registered(keys).close();
      try (Match match = world.manager.lookup(world.ns, keys);
          BlockArray blocks = match.blocks();
          BlockViews views = blocks.views()) {
        assertEquals(5, match.hits());
        assertEquals(5, match.count());
        for (int i = 0; i < 5; ++i) assertTrue(World.isFull(views.get(i), i));
        assertEquals(0, match.items(0, 5).get(4).tier());
        assertEquals(World.BLOCK, match.items(0, 5).get(4).bytes());
      }
    }
  }

  @Test
  void viewsAreNativeMemoryOfTheBlockItself() {
    try (World world = new World(); BlockArray blocks = world.manager.allocate(world.ns, 2);
        BlockViews one = blocks.views(); BlockViews other = blocks.views()) {
      ByteBuffer view = one.get(1);
      assertTrue(view.isDirect());
      assertEquals(World.BLOCK, view.capacity());
      assertEquals(ByteOrder.nativeOrder(), view.order());
      view.putInt(8, 77);
      assertEquals(77, other.get(1).getInt(8));
    }
  }

  @Test
  void blocksThatAreNotPartialCannotBeWritten() {
    try (World world = new World(); BlockArray blocks = world.manager.allocate(world.ns, 1)) {
      blocks.complete(new long[] {100});
      try (BlockViews views = blocks.views()) {
        assertEquals(100, views.get(0).capacity());
        assertThrows(ReadOnlyBufferException.class, () -> views.get(0).put(0, (byte) 1));
      }
      blocks.register(world.ns, world.keys(1, 3));
      try (BlockViews views = blocks.views()) {
        assertTrue(views.get(0).isReadOnly());
      }
    }
  }

  @Test
  void aSecondBlockOfAKeyGivesWayToTheFirst() {
    try (World world = new World()) {
      KeyArray keys = world.keys(2, 9);
      Status[] status = new Status[2];
      try (BlockArray first = world.registered(keys); BlockArray second = world.manager.allocate(world.ns, 2)) {
        second.complete();
        second.register(world.ns, keys, new RegisterOptions().itemStatus(status));
        assertEquals(Status.EXISTS, status[0]);
        try (BlockViews a = first.views(); BlockViews b = second.views()) {
          assertEquals(a.slot(1), b.slot(1));
        }
      }
    }
  }

  @Test
  void aWeakHoldDoesNotKeepItsBlock() {
    try (World world = new World()) {
      BlockArray blocks = world.registered(world.keys(1, 5));
      try (BlockArray weak = blocks.downgrade()) {
        try (BlockArray again = weak.upgrade()) {
          assertTrue(again.hold(0) != 0);
        }
        blocks.close();
        world.manager.reset();
        try (BlockArray gone = weak.upgrade(); BlockViews views = gone.views()) {
          assertEquals(0, gone.hold(0));
          assertNull(views.get(0));
        }
      }
    }
  }

  @Test
  void holdsThatWereTakenOutEndOnTheirOwn() {
    try (World world = new World()) {
      BlockArray all = world.manager.allocate(world.ns, 4);
      BlockArray two = all.take(1, 3);
      all.close();
      assertEquals(2, world.manager.stats().holds());
      try (BlockViews views = two.views()) {
        assertEquals(2, views.size());
      }
      two.close();
      assertEquals(0, world.manager.stats().holds());
    }
  }

  @Test
  void evictedKeysAreTold() {
    try (World world = new World(8)) {
      KeyArray keys = world.keys(64, 1);
      List<Key> evicted = new ArrayList<>();
      for (int i = 0; i < 64; ++i) {
        try (BlockArray block = world.manager.allocate(world.ns, 1, evicted)) {
          block.complete();
          block.register(world.ns, keys.slice(i, i + 1), new RegisterOptions().unchained(true));
        }
      }
      assertFalse(evicted.isEmpty());
      assertTrue(keys.toList().containsAll(evicted));
    }
  }

  @Test
  void thePoolIsFullWhenEverythingIsHeld() {
    try (World world = new World(8)) {
      NoRoomException e = assertThrows(NoRoomException.class, () -> world.manager.allocate(world.ns, 10_000));
      assertEquals(Status.NO_ROOM, e.status());
      assertEquals("KVBM_ERR_NO_ROOM", e.statusName());
    }
  }

  @Test
  void modesOfLookup() {
    try (World world = new World()) {
      KeyArray keys = world.keys(4, 1);
      world.registered(keys.slice(0, 2)).close();
      world.manager.drop(world.ns, null, keys.slice(0, 1));
      try (Match prefix = world.manager.lookup(world.ns, keys);
          Match each = world.manager.lookup(world.ns, keys, new LookupOptions().mode(LookupMode.EACH));
          Match any = world.manager.lookup(world.ns, keys, new LookupOptions().mode(LookupMode.ANY));
          BlockArray blocks = each.blocks(0, 0, 4)) {
        assertEquals(0, prefix.hits());
        assertEquals(0, prefix.blocks().size());
        assertEquals(1, each.hits());
        assertEquals(Kvbm.NO_TIER, each.items(0, 1).get(0).tier());
        assertEquals(1, any.hits());
        assertEquals(0, blocks.hold(0));
        assertTrue(blocks.hold(1) != 0);
      }
    }
  }
}
