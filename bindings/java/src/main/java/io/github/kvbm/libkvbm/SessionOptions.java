// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.time.Duration;

/** Options of {@link Session#open}. What is not set has its default. */
public final class SessionOptions {
  private int rank;
  private int ranks;
  private boolean noLayers;
  private long firstPosition;
  private long begin;
  private long end;
  private long timeoutNs;
  private boolean timed;
  private long budgetBytes;
  private long stream;
  private boolean hasStream;

  /** The only decode rank, blocks from position 0, all of their positions, 60 s. */
  public SessionOptions() {}

  /**
   * Sets which decode rank this is.
   *
   * @param number from 0
   * @param count how many open the request
   * @return this
   */
  public SessionOptions rank(int number, int count) {
    rank = Call.size(number, "rank");
    ranks = Call.size(count, "ranks");
    return this;
  }

  /**
   * Leaves completions of layers out.
   *
   * @param on whether to
   * @return this
   */
  public SessionOptions noLayers(boolean on) {
    noLayers = on;
    return this;
  }

  /**
   * Sets where the blocks begin.
   *
   * @param position of the first block
   * @return this
   */
  public SessionOptions firstPosition(long position) {
    firstPosition = Call.size(position, "firstPosition");
    return this;
  }

  /**
   * Sets which positions are wanted.
   *
   * @param first before the first block = from there on
   * @param afterLast 0 = to the end of the blocks
   * @return this
   */
  public SessionOptions positions(long first, long afterLast) {
    begin = Call.size(first, "first");
    end = Call.size(afterLast, "afterLast");
    return this;
  }

  /**
   * Sets the deadline of the whole session.
   *
   * @param time from now; null = none
   * @return this
   */
  public SessionOptions timeout(Duration time) {
    timeoutNs = Call.nanoseconds(time, "timeout");
    timed = true;
    return this;
  }

  /**
   * Sets how much staging may be under way at once.
   *
   * @param bytes 0 = 64 MiB
   * @return this
   */
  public SessionOptions budgetBytes(long bytes) {
    budgetBytes = Call.size(bytes, "budgetBytes");
    return this;
  }

  /**
   * Begins after what a stream holds now. Without one it begins at once.
   *
   * @param handle a CUstream or cudaStream_t of the cache's device; 0 is the legacy one
   * @return this
   */
  public SessionOptions stream(long handle) {
    stream = handle;
    hasStream = true;
    return this;
  }

  Struct write(Call call) {
    Struct out = call.memory(SIZEOF_session_options);
    Call.check(kvbm.kvbm_session_options_init(out.address, SIZEOF_session_options));
    out.put(session_options_rank, rank);
    out.put(session_options_ranks, ranks);
    out.put(session_options_no_layers, noLayers ? 1 : 0);
    out.put(session_options_first_position, firstPosition);
    out.put(session_options_begin, begin);
    out.put(session_options_end, end);
    if (timed) out.put(session_options_timeout_ns, timeoutNs);
    out.put(session_options_budget_bytes, budgetBytes);
    out.put(session_options_stream, stream);
    out.put(session_options_has_stream, hasStream ? 1 : 0);
    return out;
  }
}
