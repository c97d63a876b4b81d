// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * A request that a decode rank brings into its blocks from the prefill ranks that have it, layer by layer. Closing one
 * that goes on ends it.
 */
public final class Session extends NativeObject {
  private final Operation done;

  private Session(long pointer, Operation done) {
    super("session", pointer, kvbm::kvbm_session_release);
    this.done = done;
  }

  /**
   * Receives a request into these blocks. The library writes them until the session ends.
   *
   * @param cache an attached cache with a form other than opaque
   * @param request the request
   * @param blockIds [parts][n], {@link Kvbm#NO_BLOCK} at the front of a part that begins later
   * @param sources every prefill rank, also those with nothing for this rank
   * @param options null = defaults
   * @param queue receives its layers and its end; null = none
   * @param layers receives the {@link OperationKind#LAYER} completions, on the queue's thread; null = none
   * @return the session
   */
  public static Session open(Cache cache, RequestId request, int[] blockIds, List<Source> sources,
      SessionOptions options, CompletionQueue queue, Consumer<Completion> layers) {
    Objects.requireNonNull(cache, "cache");
    Objects.requireNonNull(request, "request");
    int ids = cache.idsOfPart(blockIds);
    try (Call call = Call.begin()) {
      long pointer = call.use(cache, "cache");
      long how = options == null ? 0 : options.write(call).address;
      Struct from = call.memory((long) SIZEOF_source * sources.size());
      for (int i = 0; i < sources.size(); ++i) {
        from.put(i * SIZEOF_source + source_node, call.text(sources.get(i).node()));
        from.put(i * SIZEOF_source + source_rank, sources.get(i).rank());
      }
      Struct out = call.memory(8);
      Struct error = call.error();
      CompletionQueue.Submit submit = (q, operation) -> kvbm.kvbm_session_open(pointer, request.write(call),
          call.ints(blockIds), ids, from.address, sources.size(), how, q, operation == null ? 0 : operation.id(),
          out.address, error.address);
      Operation done = null;
      if (queue == null) {
        Call.check(submit.call(0, null), error);
      } else {
        done = queue.submit(call, 0, false, cache, layers, error, submit);
      }
      return new Session(out.getLong(0), done);
    }
  }

  /** {@return completes when all is in place; null if it was opened without a queue} */
  public Operation done() {
    return done;
  }

  /**
   * Waits until all is in place.
   *
   * @param timeout time limit; null = for ever
   * @throws NoRoomException KVBM_ERR_AGAIN if it has not ended by then
   */
  public void await(Duration timeout) {
    try (Call call = Call.begin()) {
      Struct error = call.error();
      long ns = Call.nanoseconds(timeout, "timeout");
      Call.check(kvbm.kvbm_session_wait(call.use(handle), ns, error.address), error);
    }
  }

  /**
   * Waits until a layer is in place, also if the session failed after that.
   *
   * @param component index into the geometry's components
   * @param layer number of the layer
   * @param timeout time limit; null = for ever
   * @throws NoRoomException KVBM_ERR_AGAIN if it has not ended by then
   */
  public void awaitLayer(int component, int layer, Duration timeout) {
    try (Call call = Call.begin()) {
      Struct error = call.error();
      long ns = Call.nanoseconds(timeout, "timeout");
      Call.check(kvbm.kvbm_session_wait_layer(call.use(handle), component, layer, ns, error.address), error);
    }
  }

  /**
   * Ends the session. Prefill ranks receive the reason.
   *
   * @param reason a sentence; null = none
   */
  public void abort(String reason) {
    try (Call call = Call.begin()) {
      Call.check(kvbm.kvbm_session_abort(call.use(handle), call.text(reason)));
    }
  }
}
