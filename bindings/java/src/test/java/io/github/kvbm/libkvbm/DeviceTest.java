// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Caches in the memory of a device, on the fake of the CUDA driver that the library's own tests use. */
@Timeout(60)
class DeviceTest {
  private static final int PAGE = 4096;
  private static final int BLOCKS = 16;
  private static final int LAYERS = 2;

  private static final class DeviceWorld implements AutoCloseable {
    final Context context;
    final Manager manager;
    final Namespace ns;

    DeviceWorld(String library) {
      context = Context.create(new ContextOptions().setting("device.library", library).setting("device.cuda", "auto"));
      manager = Manager.create(
          context, new ManagerOptions().blockBytes(LAYERS * PAGE).hostCapacityBytes(4L << 20).tiers(List.of()));
      ns = manager.namespace(new NamespaceOptions("m"));
    }

    Cache attach(long... addresses) {
      List<Tensor> tensors = new ArrayList<>();
      for (long address : addresses) tensors.add(Tensor.at(address, (long) BLOCKS * PAGE, 0, PAGE));
      return manager.attach(ns, BLOCKS, List.of(new CachePart(null, Form.OPAQUE, tensors)), MemoryKind.CUDA, 0);
    }

    @Override
    public void close() {
      ns.close();
      manager.close();
      context.close();
    }
  }

  @Test
  void withoutADriverACacheOnADeviceIsRefusedInWords() {
    try (DeviceWorld world = new DeviceWorld("/nowhere/libcuda.so.1")) {
      UnavailableException refused = assertThrows(UnavailableException.class, () -> world.attach(PAGE, PAGE));
      assertEquals(Status.UNSUPPORTED, refused.status());
      assertTrue(refused.getMessage().contains("/nowhere/libcuda.so.1"), refused.getMessage());
      assertEquals(List.of(), world.manager.devices());
    }
  }

  @Test
  void aCacheInHostMemoryHasNoStreams() {
    try (World world = new World(); Cache cache = world.cache(World.memory(8))) {
      KeyArray keys = world.keys(1, 1);
      StoreOptions behind = new StoreOptions().stream(0);
      assertThrows(CallerException.class, () -> cache.store(keys, new int[] {0}, behind));
      assertEquals(List.of(), world.manager.devices());
    }
  }

  private static ByteBuffer page(long tensor, int block) {
    return kvbm.kvbm_java_buffer_at(tensor + (long) block * PAGE, PAGE);
  }

  @Test
  void whatIsStoredFromADeviceComesBackLayerByLayer() throws Exception {
    for (WaitLayers how : new WaitLayers[] {WaitLayers.ON_DEVICE, WaitLayers.ISSUED}) loadByLayers(how);
  }

  private static void loadByLayers(WaitLayers how) throws Exception {
    assumeTrue(TestDriver.isBuilt(), "the fake CUDA driver is not built (test_cuda_driver, or KVBMTEST_CUDA_DRIVER)");
    Kvbm.versionString(); // loads the library
    TestDriver.open();
    long[] tensors = new long[LAYERS];
    for (int l = 0; l < LAYERS; ++l) {
      tensors[l] = TestDriver.allocate((long) BLOCKS * PAGE);
      for (int b = 0; b < 3; ++b) World.fill(page(tensors[l], b), 10 * l + b + 1);
    }
    long stream = TestDriver.stream();
    try (DeviceWorld world = new DeviceWorld(TestDriver.file().toString()); Cache cache = world.attach(tensors);
        CompletionQueue queue = CompletionQueue.create(world.context, 4)) {
      KeyArray keys = world.ns.chain(new int[12], 4);
      cache.store(keys, new int[] {0, 1, 2}, new StoreOptions().stream(stream));
      try (Match match = cache.lookup(keys)) {
        Operation load = cache.loadAsync(
            match, new int[] {5, 6, 7}, new LoadOptions().stream(stream).waitLayers(how), queue);
        for (int l = 0; l < LAYERS; ++l) cache.waitLayer(load, l, stream);
        assertThrows(CallerException.class, () -> cache.waitLayer(load, LAYERS, stream));
        TestDriver.synchronize(stream);
        for (int l = 0; l < LAYERS; ++l) {
          for (int b = 0; b < 3; ++b) assertTrue(World.isFull(page(tensors[l], 5 + b), 10 * l + b + 1));
        }
        assertEquals(3, load.get(30, TimeUnit.SECONDS).itemsDone());
      }
      List<DeviceRow> rows = world.manager.devices();
      assertEquals(1, rows.size());
      assertEquals("ready", rows.get(0).state());
      assertFalse(rows.get(0).lost());
      assertTrue(rows.get(0).pinnedBytes() > 0);
      assertEquals(3L * LAYERS * PAGE, rows.get(0).gathers().bytes());
      assertEquals(3L * LAYERS, rows.get(0).scatters().leaves());
    }
  }

  @Test
  void aDeviceCodesItsBlocksToTheBytesOfTheProcessor() {
    assumeTrue(TestDriver.isBuilt(), "the fake CUDA driver is not built (test_cuda_driver, or KVBMTEST_CUDA_DRIVER)");
    Kvbm.versionString(); // loads the library
    TestDriver.open();
    long[] tensors = new long[LAYERS];
    List<Tensor> inHost = new ArrayList<>();
    for (int l = 0; l < LAYERS; ++l) {
      tensors[l] = TestDriver.allocate((long) BLOCKS * PAGE);
      ByteBuffer values = CodingTest.values(BLOCKS * PAGE, l);
      inHost.add(Tensor.of(values, 0, PAGE));
      kvbm.kvbm_java_buffer_at(tensors[l], BLOCKS * PAGE).put(values.duplicate());
    }
    int[] ids = {3, 0, 7};
    int[] others = {9, 10, 11};
    try (DeviceWorld world = new DeviceWorld(TestDriver.file().toString()); Cache device = world.attach(tensors);
        Cache host = world.manager.attach(world.ns, BLOCKS, List.of(new CachePart(null, Form.OPAQUE, inHost)))) {
      CodeOptions behind = new CodeOptions().form(CodingTest.BF16).stream(TestDriver.stream());
      for (CodecMode mode : new CodecMode[] {CodecMode.DEFAULT, CodecMode.INT8, CodecMode.ZSTD, CodecMode.OFF}) {
        boolean lossy = mode == CodecMode.INT8;
        ByteBuffer coded = device.encode(ids, mode, behind);
        ByteBuffer there = host.encode(ids, mode, new CodeOptions().form(CodingTest.BF16));
        assertEquals(there.remaining(), coded.remaining());
        if (lossy) { // the last digits of what was lost may differ
          assertThrows(UnavailableException.class, () -> device.decode(coded, others, false, behind));
        } else {
          assertEquals(there, coded, Codec.modeName(mode));
        }
        device.decode(coded, others, lossy, behind);
        ByteBuffer plain = Codec.decode(coded, lossy);
        for (int i = 0; i < others.length; ++i) {
          for (int l = 0; l < LAYERS; ++l) {
            assertEquals(plain.slice((i * LAYERS + l) * PAGE, PAGE), page(tensors[l], 9 + i), Codec.modeName(mode));
          }
        }
      }
      assertThrows(CallerException.class, () -> host.encode(ids, CodecMode.OFF, behind));
    }
  }

  /** A node with a cache on the fake device: a page for each layer of a block. */
  private static final class Side implements AutoCloseable {
    final Context context;
    final Manager manager;
    final Namespace ns;
    final Cache cache;
    final long[] tensors = new long[LAYERS];

    Side(String option, String value) {
      context = Context.create(
          new ContextOptions().setting("device.library", TestDriver.file().toString()).setting(option, value));
      manager = Manager.create(
          context, new ManagerOptions().blockBytes(65536).hostCapacityBytes(4L << 20).tiers(List.of()));
      List<Component> model = List.of(Component.attention(Element.BF16, LAYERS, 2, 32));
      try (Geometry geometry = Geometry.create(16, 1, model)) {
        ns = manager.namespace(new NamespaceOptions("m").geometry(geometry));
      }
      List<Tensor> list = new ArrayList<>();
      for (int l = 0; l < LAYERS; ++l) {
        tensors[l] = TestDriver.allocate((long) BLOCKS * PAGE);
        list.add(Tensor.at(tensors[l], (long) BLOCKS * PAGE, 0, 0));
      }
      cache = manager.attach(ns, BLOCKS, List.of(new CachePart(null, Form.BLOCKS_NHD, list)), MemoryKind.CUDA, 0);
    }

    @Override
    public void close() {
      cache.close();
      ns.close();
      manager.close();
      context.close();
    }
  }

  @Test
  void aRequestMovesBetweenDevicesBehindTheirStreams() {
    assumeTrue(TestDriver.isBuilt(), "the fake CUDA driver is not built (test_cuda_driver, or KVBMTEST_CUDA_DRIVER)");
    Kvbm.versionString(); // loads the library
    TestDriver.open();
    try (Side prefill = new Side("node.listen", "127.0.0.1:0");
        Side decode = new Side("node.peers", prefill.manager.nodeAddress())) {
      RequestId request = RequestId.random();
      List<Source> sources = List.of(new Source(prefill.manager.nodeAddress(), 0));
      SessionOptions behind = new SessionOptions().stream(TestDriver.stream());
      try (Session session = Session.open(decode.cache, request, new int[] {3, 1}, sources, behind, null, null);
          Offer offer = Offer.open(prefill.cache, request, new int[] {0, 2}, null, null)) {
        long computing = TestDriver.stream();
        for (int l = 0; l < LAYERS; ++l) {
          for (int b = 0; b < BLOCKS; ++b) World.fill(page(prefill.tensors[l], b), l + 1);
          offer.publishOnStream(0, l, 1, 0, 0, computing);
          session.awaitLayer(0, l, Duration.ofSeconds(30));
          assertTrue(World.isFull(page(decode.tensors[l], 3), l + 1));
        }
        session.await(Duration.ofSeconds(30));
        offer.await(Duration.ofSeconds(30));
      }
    }
  }
}
