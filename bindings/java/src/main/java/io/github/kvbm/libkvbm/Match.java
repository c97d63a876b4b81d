// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.util.ArrayList;
import java.util.List;

/**
 * Result of a lookup. Holds the blocks found until it is closed. A lookup without a hit gives a match with {@link
 * #hits} 0.
 */
public final class Match extends NativeObject {
  private final Manager manager;
  private final int hits;
  private final boolean empty;

  Match(long pointer, Manager manager, int hits) {
    super("match", pointer, kvbm::kvbm_match_release);
    this.manager = manager;
    this.hits = hits;
    this.empty = pointer == 0;
  }

  /** {@return leading keys that hit (PREFIX), keys that hit at all (EACH), or 0 or 1 (ANY)} */
  public int hits() {
    return hits;
  }

  /** Whether the library made no match at all. */
  boolean isEmpty() {
    return empty;
  }

  /** {@return keys the match was made from; 0 where nothing hit} */
  public int count() {
    if (empty) return 0;
    try (Call call = Call.begin()) {
      return (int) kvbm.kvbm_match_count(call.use(handle));
    }
  }

  /** {@return leading engine blocks that hit; see {@link LookupOptions#unitKeys}} */
  public int units() {
    if (empty) return 0;
    try (Call call = Call.begin()) {
      return (int) kvbm.kvbm_match_units(call.use(handle));
    }
  }

  /**
   * Says what is known of keys.
   *
   * @param first index of the first key
   * @param n number of blocks
   * @return a row for each
   */
  public List<MatchItem> items(int first, int n) {
    try (Call call = Call.begin()) {
      long match = call.use(handle);
      checkRange(match, first, n);
      Struct rows = call.memory((long) SIZEOF_match_item * n);
      if (n > 0) Call.check(kvbm.kvbm_match_items(match, first, n, rows.address));
      List<MatchItem> items = new ArrayList<>(n);
      for (int i = 0; i < n; ++i) {
        int at = i * SIZEOF_match_item;
        items.add(new MatchItem(rows.getInt(at + match_item_tier), rows.getInt(at + match_item_parts_needed),
            rows.getLong(at + match_item_bytes), rows.getLong(at + match_item_below_bytes)));
      }
      return items;
    }
  }

  /**
   * Predicts loads.
   *
   * @param first index of the first key
   * @param n number of blocks
   * @return nanoseconds of loading the first one of them, the first two, and so on
   */
  public long[] cost(int first, int n) {
    try (Call call = Call.begin()) {
      long match = call.use(handle);
      checkRange(match, first, n);
      Struct rows = call.memory(8L * n);
      if (n > 0) Call.check(kvbm.kvbm_match_cost(match, first, n, rows.address));
      long[] ns = new long[n];
      for (int i = 0; i < n; ++i) ns[i] = rows.getLong(8 * i);
      return ns;
    }
  }

  /**
   * Takes holds on what hit and is in the host tier: component 0 of all leading keys that hit.
   *
   * @return registered blocks, one for each of {@link #hits}
   */
  public BlockArray blocks() {
    return blocks(0, 0, hits);
  }

  /**
   * Makes holds on blocks in the host tier.
   *
   * @param part index of the lookup's part
   * @param first index of the first key
   * @param n number of keys
   * @return registered blocks; 0 for a key without a block in the host tier
   */
  public BlockArray blocks(int part, int first, int n) {
    try (Call call = Call.begin()) {
      long match = call.use(handle);
      checkRange(match, first, n);
      long pool = call.use(manager.handle);
      Struct out = call.memory(8L * n);
      if (n > 0) Call.check(kvbm.kvbm_match_blocks(match, part, first, n, out.address));
      return BlockArray.read(manager.handle, pool, out, n, BlockArray.State.REGISTERED);
    }
  }

  private void checkRange(long match, int first, int n) {
    long count = match == 0 ? 0 : kvbm.kvbm_match_count(match);
    if (first < 0 || n < 0 || first > count - n) {
      throw new IndexOutOfBoundsException("keys [" + first + ", " + ((long) first + n) + ") of " + count);
    }
  }

  @Override
  String facts() {
    return "hits " + hits;
  }
}
