// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** References between objects, and the cleaner's treatment of forgotten ones. */
@Timeout(120)
class LifetimeTest {
  /** Collects until it is so; the test's time limit ends one that never is. */
  private static void collectUntil(BooleanSupplier so) {
    while (!so.getAsBoolean()) {
      System.gc();
      Thread.onSpinWait();
    }
  }

  @Test
  void forgottenObjectsAreReleased() {
    try (World world = new World()) {
      forget(world);
      collectUntil(() -> world.manager.stats().holds() == 0 && world.manager.stats().matches() == 0);
    }
  }

  private static void forget(World world) {
    KeyArray keys = world.keys(4, 1);
    world.registered(keys).duplicate();
    Match match = world.manager.lookup(world.ns, keys);
    match.blocks();
    assertEquals(1, world.manager.stats().matches());
    world.cache(World.memory(2));
    CompletionQueue.create(world.context, 1);
  }

  @Test
  void aViewKeepsItsBlockAfterTheArrayWasClosed() {
    try (World world = new World()) {
      ByteBuffer view = viewOf(world, world.keys(1, 1));
      assertEquals(1, world.manager.stats().holds());
      System.gc();
      assertTrue(World.isFull(view, 0));
      assertEquals(1, world.manager.stats().holds());
      view = null;
      collectUntil(() -> world.manager.stats().holds() == 0);
    }
  }

  private static ByteBuffer viewOf(World world, KeyArray keys) {
    try (BlockArray blocks = world.registered(keys)) {
      return blocks.views().get(0);
    }
  }

  @Test
  void closedViewsLetTheHoldsEndAtOnce() {
    try (World world = new World()) {
      BlockArray blocks = world.registered(world.keys(3, 1));
      BlockViews views = blocks.views();
      blocks.close();
      assertEquals(3, world.manager.stats().holds());
      views.close();
      assertEquals(0, world.manager.stats().holds());
    }
  }

  @Test
  void aViewOutlivesItsManager() {
    World world = new World();
    ByteBuffer view = viewOf(world, world.keys(1, 1));
    world.close();
    assertTrue(World.isFull(view, 0));
  }

  @Test
  void anyOrderOfClosingIsLegal() {
    long seed = 42;
    Random random = new Random(seed);
    for (int round = 0; round < 60; ++round) {
      World world = new World(16);
      KeyArray keys = world.keys(2, round);
      Cache cache = world.cache(World.memory(4));
      BlockArray blocks = world.registered(keys);
      BlockViews views = blocks.views();
      Match match = cache.lookup(keys);
      BlockArray held = match.blocks();
      CompletionQueue queue = CompletionQueue.create(world.context, 4);
      cache.loadAsync(match, new int[] {0, 1}, null, queue);
      List<AutoCloseable> all = new ArrayList<>(
          List.of(world.context, world.manager, world.ns, cache, blocks, views, match, held, queue));
      Collections.shuffle(all, random);
      for (AutoCloseable one : all) {
        try {
          one.close();
        } catch (Exception e) {
          throw new AssertionError("round " + round + " of seed " + seed, e);
        }
      }
    }
  }

  @Test
  void tensorsAreKeptWhileTheyAreBorrowed() throws Exception {
    try (World world = new World(); CompletionQueue queue = CompletionQueue.create(world.context, 64)) {
      KeyArray keys = world.keys(4, 1);
      List<Operation> operations = new ArrayList<>();
      for (int i = 0; i < 40; ++i) {
        // Nothing but the operation refers to the cache and its memory.
        operations.add(world.cache(World.memory(4)).storeAsync(keys, new int[] {0, 1, 2, 3}, null, queue));
        if (i % 10 == 0) System.gc();
      }
      for (Operation one : operations) assertEquals(4, one.get().itemsDone());
    }
  }

  @Test
  void closingWhileOthersUseItIsAnErrorForThem() throws InterruptedException {
    for (int round = 0; round < 20; ++round) {
      World world = new World();
      KeyArray keys = world.keys(8, 1);
      BlockArray blocks = world.registered(keys);
      AtomicInteger wrong = new AtomicInteger();
      CountDownLatch started = new CountDownLatch(3);
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < 3; ++i) {
        Thread thread = new Thread(() -> {
          try {
            for (int j = 0;; ++j) {
              try (Match match = world.manager.lookup(world.ns, keys); BlockViews views = blocks.views()) {
                if (match.hits() != 8 || !World.isFull(views.get(7), 7)) wrong.incrementAndGet();
              }
              if (j == 0) started.countDown();
            }
          } catch (IllegalStateException closed) {
            started.countDown();
          } catch (RuntimeException other) {
            wrong.incrementAndGet();
            started.countDown();
          }
        });
        thread.start();
        threads.add(thread);
      }
      started.await();
      blocks.close();
      world.close();
      for (Thread thread : threads) thread.join();
      assertEquals(0, wrong.get());
    }
  }

  @Test
  void manyManagersLeaveNothingBehind() throws Exception {
    Runnable round = () -> {
      try (World world = new World(16)) {
        world.registered(world.keys(2, 1)).close();
      }
    };
    for (int i = 0; i < 20; ++i) round.run();
    long before = open();
    for (int i = 0; i < 50; ++i) round.run();
    // A leak would be one a round; a few come and go with the JVM's own work.
    assertTrue(open() <= before + 20, open() + " files are open, and " + before + " before");
  }

  private static long open() throws Exception {
    try (var files = java.nio.file.Files.list(java.nio.file.Path.of("/proc/self/fd"))) {
      return files.count();
    }
  }
}
