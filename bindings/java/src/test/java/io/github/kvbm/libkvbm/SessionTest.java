// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A prefill node and a decode node move a request, layer by layer, between blocks of other sizes and orders. */
@Timeout(60)
class SessionTest {
  private static final int LAYERS = 4;
  private static final int HEADS = 2;
  private static final int DIM = 8;
  private static final int TOKENS = 64;

  private static final class Side implements AutoCloseable {
    final Context context;
    final Manager manager;
    final Namespace ns;
    final Cache cache;
    final List<ByteBuffer> layers = new ArrayList<>();
    final int[] blocks;

    Side(String option, String address, int blockTokens, Form form) {
      context = Context.create(new ContextOptions().setting(option, address));
      manager = Manager.create(
          context, new ManagerOptions().hostCapacityBytes(8L << 20).blockBytes(65536).tiers(List.of()));
      List<Component> model = List.of(Component.attention(Element.BF16, LAYERS, HEADS, DIM));
      try (Geometry geometry = Geometry.create(blockTokens, 1, model)) {
        assertEquals(2L * LAYERS * HEADS * DIM * 2 * blockTokens, geometry.recordBytes(0, null));
        ns = manager.namespace(new NamespaceOptions("a model").geometry(geometry));
      }
      blocks = new int[TOKENS / blockTokens];
      for (int b = 0; b < blocks.length; ++b) blocks[b] = blocks.length - 1 - b;
      List<Tensor> tensors = new ArrayList<>();
      for (int l = 0; l < LAYERS; ++l) {
        layers.add(ByteBuffer.allocateDirect(2 * TOKENS * HEADS * DIM * 2).order(ByteOrder.nativeOrder()));
        tensors.add(Tensor.of(layers.get(l), 0, 0));
      }
      cache = manager.attach(ns, blocks.length, List.of(new CachePart(null, form, tensors)));
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
  void layersArriveWhileTheyAreComputed() throws Exception {
    try (Side prefill = new Side("node.listen", "127.0.0.1:0", 16, Form.NHD);
        Side decode = new Side("node.peers", prefill.manager.nodeAddress(), 8, Form.HND);
        CompletionQueue queue = CompletionQueue.create(decode.context, 64);
        CompletionQueue ends = CompletionQueue.create(prefill.context, 64)) {
      RequestId request = RequestId.random();
      List<Long> arrived = Collections.synchronizedList(new ArrayList<>());
      try (Session session = Session.open(decode.cache, request, decode.blocks,
               List.of(new Source(prefill.manager.nodeAddress(), 0)),
               new SessionOptions().timeout(Duration.ofSeconds(30)), queue, layer -> arrived.add(layer.operation()));
           Offer offer = Offer.open(prefill.cache, request, prefill.blocks, new OfferOptions(), ends)) {
        for (int l = 0; l < LAYERS; ++l) {
          ByteBuffer layer = prefill.layers.get(l);
          for (int i = 0; i < layer.capacity() / 2; ++i) layer.putShort(2 * i, (short) (1000 * l + i));
          offer.publish(0, l, 1, 0, 0);
          session.awaitLayer(0, l, Duration.ofSeconds(30));
          // Head 1, token 20, element 3: blocks of 16 [token][head] here, of 8 [head][token] there.
          int sent = prefill.blocks[20 / 16] * 16 * HEADS * DIM + (20 % 16 * HEADS + 1) * DIM + 3;
          int got = decode.blocks[20 / 8] * 8 * HEADS * DIM + (8 + 20 % 8) * DIM + 3;
          assertEquals(layer.getShort(2 * sent), decode.layers.get(l).getShort(2 * got));
        }
        session.await(Duration.ofSeconds(30));
        offer.await(Duration.ofSeconds(30));
        assertEquals(OperationKind.RECEIVE, session.done().get(30, TimeUnit.SECONDS).op());
        assertEquals(OperationKind.OFFER, offer.done().get(30, TimeUnit.SECONDS).op());
        assertEquals(List.of(0L, 1L, 2L, 3L), arrived);
        assertThrows(CallerException.class, () -> offer.abort("late"));
      }
    }
  }

  @Test
  void whatIsInHostMemoryWaitsForNoStream() {
    try (Side prefill = new Side("node.listen", "127.0.0.1:0", 16, Form.NHD)) {
      RequestId request = RequestId.random();
      try (Offer offer = Offer.open(prefill.cache, request, prefill.blocks, null, null)) {
        CallerException e = assertThrows(CallerException.class, () -> offer.publishOnStream(0, 0, 1, 0, 0, 0));
        assertEquals(Status.INVALID, e.status());
      }
      CallerException e = assertThrows(CallerException.class, () -> Session.open(prefill.cache, request,
          prefill.blocks, List.of(new Source("nobody", 0)), new SessionOptions().stream(0), null, null));
      assertEquals(Status.INVALID, e.status());
    }
  }

  @Test
  void anAbortedOfferEndsTheSession() {
    try (Side prefill = new Side("node.listen", "127.0.0.1:0", 16, Form.NHD);
        Side decode = new Side("node.peers", prefill.manager.nodeAddress(), 16, Form.NHD)) {
      RequestId request = RequestId.random();
      try (Offer offer = Offer.open(prefill.cache, request, prefill.blocks, null, null);
          Session session = Session.open(decode.cache, request, decode.blocks,
              List.of(new Source(prefill.manager.nodeAddress(), 0)), null, null, null)) {
        assertThrows(NoRoomException.class, () -> session.await(Duration.ofMillis(1)));
        offer.abort("the request was withdrawn: \u00fc");
        PeerException e = assertThrows(PeerException.class, () -> session.await(Duration.ofSeconds(30)));
        assertEquals(Status.CANCELLED, e.status());
        assertTrue(e.getMessage().contains("withdrawn: \u00fc"), e.getMessage());
      }
    }
  }
}
