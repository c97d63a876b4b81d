// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.time.Duration;
import java.util.Objects;

/**
 * Blocks of a request that a prefill rank offers to decode ranks, layer by layer, while they are computed. Closing one
 * that goes on aborts it.
 */
public final class Offer extends NativeObject {
  private final Operation done;

  private Offer(long pointer, Operation done) {
    super("offer", pointer, kvbm::kvbm_offer_release);
    this.done = done;
  }

  /**
   * Offers the blocks of a request. The library reads them until the offer ends.
   *
   * @param cache an attached cache with a form other than opaque
   * @param request the request
   * @param blockIds [parts][n], {@link Kvbm#NO_BLOCK} at the front of a part that begins later
   * @param options null = defaults
   * @param queue receives its end; null = none
   * @return the offer
   */
  public static Offer open(
      Cache cache, RequestId request, int[] blockIds, OfferOptions options, CompletionQueue queue) {
    Objects.requireNonNull(cache, "cache");
    Objects.requireNonNull(request, "request");
    int ids = cache.idsOfPart(blockIds);
    try (Call call = Call.begin()) {
      long pointer = call.use(cache, "cache");
      long how = options == null ? 0 : options.write(call).address;
      Struct out = call.memory(8);
      Struct error = call.error();
      CompletionQueue.Submit submit = (q, operation) -> kvbm.kvbm_offer_open(pointer, request.write(call),
          call.ints(blockIds), ids, how, q, operation == null ? 0 : operation.id(), out.address, error.address);
      Operation done = null;
      if (queue == null) {
        Call.check(submit.call(0, null), error);
      } else {
        done = queue.submit(call, 0, false, cache, null, error, submit);
      }
      return new Offer(out.getLong(0), done);
    }
  }

  /** {@return completes when the blocks are free again; null if it was opened without a queue} */
  public Operation done() {
    return done;
  }

  /**
   * Publishes layers: they are computed and in memory.
   *
   * @param component index into the geometry's components
   * @param firstLayer first layer
   * @param nLayers number of layers; 0 = all from there on
   * @param begin first position
   * @param end position after the last; 0 = to the last
   */
  public void publish(int component, int firstLayer, int nLayers, long begin, long end) {
    try (Call call = Call.begin()) {
      Struct error = call.error();
      Call.check(kvbm.kvbm_offer_publish(
          call.use(handle), component, firstLayer, nLayers, begin, end, error.address), error);
    }
  }

  /**
   * Publishes layers of a cache on a device when the work now in a stream is done. Call it after launching the kernels
   * that compute them. The call does not wait, and later work in the stream does not wait for it.
   *
   * @param component index into the geometry's components
   * @param firstLayer first layer
   * @param nLayers number of layers; 0 = all from there on
   * @param begin first position
   * @param end position after the last; 0 = to the last
   * @param stream a CUstream or cudaStream_t of the cache's device; 0 is the legacy one
   */
  public void publishOnStream(int component, int firstLayer, int nLayers, long begin, long end, long stream) {
    try (Call call = Call.begin()) {
      Struct error = call.error();
      Call.check(kvbm.kvbm_offer_publish_on_stream(
          call.use(handle), component, firstLayer, nLayers, begin, end, stream, error.address), error);
    }
  }

  /** Publishes everything that is offered. */
  public void publishAll() {
    try (Call call = Call.begin()) {
      Struct error = call.error();
      Call.check(kvbm.kvbm_offer_publish_all(call.use(handle), error.address), error);
    }
  }

  /**
   * Ends the offer. Decode ranks that wait for it receive the reason.
   *
   * @param reason a sentence; null = none
   */
  public void abort(String reason) {
    try (Call call = Call.begin()) {
      Call.check(kvbm.kvbm_offer_abort(call.use(handle), call.text(reason)));
    }
  }

  /**
   * Waits until the offer has ended: it returns if every decode rank was served.
   *
   * @param timeout time limit; null = for ever
   * @throws NoRoomException KVBM_ERR_AGAIN if it has not ended by then
   */
  public void await(Duration timeout) {
    try (Call call = Call.begin()) {
      Struct error = call.error();
      long ns = Call.nanoseconds(timeout, "timeout");
      Call.check(kvbm.kvbm_offer_wait(call.use(handle), ns, error.address), error);
    }
  }
}
