// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.time.Duration;

/** Options of {@link Offer#open}. What is not set has its default. */
public final class OfferOptions {
  private int rank;
  private long firstPosition;
  private long begin;
  private long end;
  private long timeoutNs;
  private boolean timed;

  /** Rank 0, blocks from position 0, all of their positions, 60 s. */
  public OfferOptions() {}

  /**
   * Sets this prefill rank, as decode sides name it.
   *
   * @param number below 65,536
   * @return this
   */
  public OfferOptions rank(int number) {
    rank = Call.size(number, "rank");
    return this;
  }

  /**
   * Sets where the blocks begin.
   *
   * @param position of the first block
   * @return this
   */
  public OfferOptions firstPosition(long position) {
    firstPosition = Call.size(position, "firstPosition");
    return this;
  }

  /**
   * Sets which positions are offered.
   *
   * @param first before the first block = from there on
   * @param afterLast 0 = to the end of the blocks
   * @return this
   */
  public OfferOptions positions(long first, long afterLast) {
    begin = Call.size(first, "first");
    end = Call.size(afterLast, "afterLast");
    return this;
  }

  /**
   * Sets the deadline of the whole offer.
   *
   * @param time from now; null = none
   * @return this
   */
  public OfferOptions timeout(Duration time) {
    timeoutNs = Call.nanoseconds(time, "timeout");
    timed = true;
    return this;
  }

  Struct write(Call call) {
    Struct out = call.memory(SIZEOF_offer_options);
    Call.check(kvbm.kvbm_offer_options_init(out.address, SIZEOF_offer_options));
    out.put(offer_options_rank, rank);
    out.put(offer_options_first_position, firstPosition);
    out.put(offer_options_begin, begin);
    out.put(offer_options_end, end);
    if (timed) out.put(offer_options_timeout_ns, timeoutNs);
    return out;
  }
}
