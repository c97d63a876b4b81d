// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** An engine's own cache: stores and loads that wait, and those that complete futures. */
@Timeout(60)
class AttachedTest {
  private static final int[] FIRST = {0, 1, 2, 3};
  private static final int[] LAST = {4, 5, 6, 7};

  private static ByteBuffer filled() {
    ByteBuffer memory = World.memory(8);
    for (int i = 0; i < 4; ++i) World.fill(memory.slice(i * World.BLOCK, World.BLOCK), i + 1);
    return memory;
  }

  private static void assertCopied(ByteBuffer memory) {
    for (int i = 0; i < 4; ++i) assertTrue(World.isFull(memory.slice((4 + i) * World.BLOCK, World.BLOCK), i + 1));
  }

  @Test
  void whatWasStoredIsLoadedIntoOtherBlocks() {
    ByteBuffer memory = filled();
    try (World world = new World(); Cache cache = world.cache(memory)) {
      KeyArray keys = world.keys(4, 1);
      Status[] status = new Status[4];
      assertEquals(Status.OK, cache.store(keys, FIRST, new StoreOptions().itemStatus(status)));
      assertEquals(Collections.nCopies(4, Status.OK), List.of(status));
      try (Match match = cache.lookup(keys)) {
        assertEquals(4, match.hits());
        assertEquals(Status.OK, cache.load(match, LAST));
      }
      assertCopied(memory);
    }
  }

  @Test
  void aFutureCompletesWithWhatWasDone() throws Exception {
    ByteBuffer memory = filled();
    try (World world = new World(); Cache cache = world.cache(memory);
        CompletionQueue queue = CompletionQueue.create(world.context, 16)) {
      KeyArray keys = world.keys(4, 1);
      Operation store = cache.storeAsync(keys, FIRST, null, queue);
      Completion stored = store.get(30, TimeUnit.SECONDS);
      assertEquals(4, stored.itemsDone());
      assertEquals(OperationKind.STORE, stored.op());
      assertEquals(Collections.nCopies(4, Status.OK), List.of(store.itemStatus()));
      Match match = cache.lookup(keys);
      Operation load = cache.loadAsync(match, LAST, null, queue);
      match.close();
      assertEquals(4L * World.BLOCK, load.thenApply(Completion::bytes).get(30, TimeUnit.SECONDS));
      assertCopied(memory);
      assertEquals(0, queue.pending());
      assertEquals(4, world.manager.prefetchAsync(world.ns, null, keys, queue).get(30, TimeUnit.SECONDS).items());
    }
  }

  @Test
  void aFutureOfWhatFailsIsExceptional() {
    try (World world = new World(); Cache cache = world.cache(World.memory(8));
        CompletionQueue queue = CompletionQueue.create(world.context, 16)) {
      KeyArray keys = world.keys(4, 1);
      cache.store(keys, FIRST);
      Operation offload = null;
      try {
        offload = world.manager.offloadAsync(world.ns, null, keys, 1, queue);
      } catch (KvbmException refused) {
        assertTrue(refused.statusNumber() < 0); // There is no such tier.
      }
      if (offload != null) {
        Operation accepted = offload;
        ExecutionException e = assertThrows(ExecutionException.class, () -> accepted.get(30, TimeUnit.SECONDS));
        assertInstanceOf(KvbmException.class, e.getCause());
      }
    }
  }

  @Test
  void whatIsRefusedLeavesNothingPending() {
    try (World world = new World(); Cache cache = world.cache(World.memory(8));
        CompletionQueue queue = CompletionQueue.create(world.context, 16)) {
      CallerException e = assertThrows(
          CallerException.class, () -> cache.storeAsync(world.keys(1, 1), new int[] {99}, null, queue));
      assertEquals(Status.INVALID, e.status());
      assertEquals(0, queue.pending());
    }
  }

  @Test
  void aPolledQueueCompletesFuturesWhenItIsPolled() {
    try (World world = new World(); Cache cache = world.cache(filled());
        CompletionQueue queue = CompletionQueue.polled(world.context, 16)) {
      assertTrue(queue.fd() >= 0);
      assertTrue(queue.poll(4).isEmpty());
      Operation store = cache.storeAsync(world.keys(4, 1), FIRST, null, queue);
      assertFalse(store.isDone());
      assertThrows(IllegalStateException.class, store::itemStatus);
      List<Completion> taken = new ArrayList<>();
      while (taken.isEmpty()) taken.addAll(queue.await(4, Duration.ofSeconds(1)));
      assertEquals(store.id(), taken.get(0).id());
      assertTrue(store.isDone());
      assertFalse(store.cancel(true));
    }
  }

  @Test
  void aQueueWithAThreadIsNotPolledByOthers() {
    try (World world = new World(); CompletionQueue queue = CompletionQueue.create(world.context, 1)) {
      assertThrows(IllegalStateException.class, () -> queue.poll(1));
    }
  }

  @Test
  void closingAQueueLetsWhatIsUnderWayComplete() throws Exception {
    ByteBuffer memory = filled();
    try (World world = new World(); Cache cache = world.cache(memory)) {
      for (boolean polled : new boolean[] {false, true}) {
        CompletionQueue queue =
            polled ? CompletionQueue.polled(world.context, 16) : CompletionQueue.create(world.context, 16);
        Operation store = cache.storeAsync(world.keys(4, polled ? 100 : 200), FIRST, null, queue);
        queue.close();
        queue.close();
        assertEquals(4, store.get(30, TimeUnit.SECONDS).itemsDone());
        assertThrows(IllegalStateException.class, () -> cache.storeAsync(world.keys(4, 1), FIRST, null, queue));
      }
    }
  }

  @Test
  void aCancelledOperationCompletesEitherWay() throws Exception {
    try (World world = new World(); Cache cache = world.cache(filled());
        CompletionQueue queue = CompletionQueue.create(world.context, 64)) {
      for (int i = 0; i < 50; ++i) {
        Operation store = cache.storeAsync(world.keys(4, 1000 * i), FIRST, null, queue);
        store.cancel(true);
        try {
          assertEquals(OperationKind.STORE, store.get(30, TimeUnit.SECONDS).op());
        } catch (CancellationException e) {
          assertTrue(store.isCancelled());
        }
      }
    }
  }

  @Test
  void eventsTellWhereBlocksWent() {
    try (World world = new World(); Cache cache = world.cache(filled());
        CompletionQueue queue = CompletionQueue.create(world.context, 64)) {
      world.manager.subscribe(queue);
      KeyArray keys = world.keys(4, 1);
      cache.store(keys, FIRST);
      List<BlockEvent> events = new ArrayList<>();
      while (events.size() < 4) events.addAll(queue.pollEvents(16));
      assertEquals(EventKind.STORED, events.get(0).kind());
      assertEquals(keys.get(0), events.get(0).key());
      assertEquals(world.ns.id(), events.get(0).namespaceId());
      assertEquals(keys.get(0), events.get(1).parent());
      world.manager.subscribe(null);
    }
  }

  @Test
  void aPinKeepsBlocksAndEndsOnce() {
    try (World world = new World(); Cache cache = world.cache(filled())) {
      KeyArray keys = world.keys(4, 1);
      cache.store(keys, FIRST);
      Pin pin = world.manager.pin(world.ns, null, keys, 7, Duration.ofMinutes(1));
      assertEquals(4, pin.count());
      assertNotEquals(0, pin.id());
      world.manager.hint(world.ns, null, keys, Priority.KEEP);
      world.manager.unpin(pin);
      assertEquals(Status.STALE, assertThrows(CallerException.class, () -> world.manager.unpin(pin)).status());
      world.manager.pin(world.ns, null, keys, 7, Duration.ofMinutes(1));
      assertEquals(1, world.manager.unpinOwner(7));
      assertEquals(4, world.manager.drop(world.ns, null, keys));
    }
  }

  @Test
  void blocksAreSeenInScansAndCounters() {
    try (World world = new World(); Cache cache = world.cache(filled())) {
      cache.store(world.keys(4, 1), FIRST);
      BlockScan scan = world.manager.scan();
      List<ScanRow> rows = new ArrayList<>();
      while (!scan.ended()) rows.addAll(scan.next(3));
      assertEquals(4, rows.size());
      assertEquals(4, world.manager.stats().tiers().get(0).blocks());
      assertTrue(world.manager.metrics().contains("kvbm_"));
      assertEquals("", world.manager.nodeAddress());
      assertEquals(ShareRole.OFF, world.manager.share().role());
      assertTrue(world.manager.nodes().isEmpty());
      LocateResult found = world.manager.locate(world.ns, world.keys(4, 1), new int[] {4}, null, null);
      assertTrue(found.complete());
      assertEquals(4, found.rows().get(0).prefix());
    }
  }
}
