// SPDX-License-Identifier: Apache-2.0
import io.github.kvbm.libkvbm.*;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * A prefill node and a decode node move the KV of one request, layer by layer. Both are in this program, so it can be
 * run alone. In production each is an engine on its own machine, and the addresses come from the configuration.
 */
public class PrefillDecode {
  private static final int LAYERS = 4;
  private static final int TOKENS = 64;
  private static final int LAYER_BYTES = 2 * TOKENS * 2 * 8 * 2; // K and V, two heads of eight bf16 numbers

  private static Context context(String option, String address) {
    return Context.create(new ContextOptions().setting(option, address));
  }

  private static Namespace namespace(Manager manager, int blockTokens) {
    try (Geometry geometry =
        Geometry.create(blockTokens, 1, List.of(Component.attention(Element.BF16, LAYERS, 2, 8)))) {
      return manager.namespace(new NamespaceOptions("my-model, bf16").geometry(geometry));
    }
  }

  private static List<ByteBuffer> memory() {
    List<ByteBuffer> layers = new ArrayList<>();
    for (int l = 0; l < LAYERS; ++l) layers.add(ByteBuffer.allocateDirect(LAYER_BYTES));
    return layers;
  }

  private static Cache attach(Manager manager, Namespace ns, int blocks, Form form, List<ByteBuffer> memory) {
    List<Tensor> tensors = memory.stream().map(layer -> Tensor.of(layer, 0, 0)).toList();
    return manager.attach(ns, blocks, List.of(new CachePart(null, form, tensors)));
  }

  public static void main(String[] args) throws Exception {
    List<ByteBuffer> here = memory();
    List<ByteBuffer> there = memory();
    int[] hereBlocks = {3, 2, 1, 0}; // of 16 tokens, wherever the engine put them
    int[] thereBlocks = {7, 6, 5, 4, 3, 2, 1, 0}; // of 8
    RequestId request = RequestId.random();
    try (Context prefillContext = context("node.listen", "127.0.0.1:0");
        Manager prefill = Manager.create(prefillContext);
        Namespace prefillNs = namespace(prefill, 16);
        Cache from = attach(prefill, prefillNs, 4, Form.NHD, here);
        Context decodeContext = context("node.peers", prefill.nodeAddress());
        Manager decode = Manager.create(decodeContext);
        Namespace decodeNs = namespace(decode, 8);
        Cache to = attach(decode, decodeNs, 8, Form.HND, there);
        CompletionQueue queue = CompletionQueue.create(decodeContext, 64)) {
      List<Source> sources = List.of(new Source(prefill.nodeAddress(), 0));
      try (Session session = Session.open(to, request, thereBlocks, sources, null, queue, null);
          Offer offer = Offer.open(from, request, hereBlocks, null, null)) {
        for (int l = 0; l < LAYERS; ++l) {
          for (int i = 0; i < LAYER_BYTES; ++i) here.get(l).put(i, (byte) (l + i)); // prefill: compute a layer
          offer.publish(0, l, 1, 0, 0); // prefill: publish the layer
          session.awaitLayer(0, l, null); // decode: use it while the next one is computed
        }
        Completion done = session.done().get();
        offer.await(null); // the prefill's blocks are free
        System.out.println(done.items() + " layers arrived, " + done.bytes() + " bytes");
        if (done.bytes() != (long) LAYERS * LAYER_BYTES) System.exit(1);
      }
    }
  }
}
