// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.time.Duration;
import java.util.List;
import java.util.Objects;

/** Options of {@link Cache#store}. What is not set has its default. */
public final class StoreOptions {
  private Priority priority = Priority.NORMAL;
  private Key parent;
  private boolean unchained;
  private List<Position> positions;
  private long timeoutNs = Kvbm.FOREVER;
  private Status[] itemStatus;
  private long stream;
  private boolean hasStream;
  private KeyArray unitKeys;

  /** Normal priority, chained from a block without a parent, no deadline. */
  public StoreOptions() {}

  /**
   * Tells the policies what is known of the blocks.
   *
   * @param value the priority
   * @return this
   */
  public StoreOptions priority(Priority value) {
    priority = Objects.requireNonNull(value, "value");
    return this;
  }

  /**
   * Sets the key before the first.
   *
   * @param key null = none
   * @return this
   */
  public StoreOptions parent(Key key) {
    parent = key;
    return this;
  }

  /**
   * Says that the keys are not a prefix in order.
   *
   * @param on whether so
   * @return this
   */
  public StoreOptions unchained(boolean on) {
    unchained = on;
    return this;
  }

  /**
   * Sets where blocks under content keys were computed.
   *
   * @param list one for each key; null = none
   * @return this
   */
  public StoreOptions positions(List<Position> list) {
    positions = list == null ? null : List.copyOf(list);
    return this;
  }

  /**
   * Sets how long it may take; what is not in place by then is KVBM_ERR_DEADLINE.
   *
   * @param time null = as long as it takes
   * @return this
   */
  public StoreOptions timeout(Duration time) {
    timeoutNs = Call.nanoseconds(time, "timeout");
    return this;
  }

  /**
   * Asks a call that waits what became of each key; an {@link Operation} has statuses of its own.
   *
   * @param into filled by the call; as long as the batch
   * @return this
   */
  public StoreOptions itemStatus(Status[] into) {
    itemStatus = into;
    return this;
  }

  /**
   * Sets the engine's own keys of the blocks within each stored block.
   *
   * @param keys as many as block ids of one part; null = none
   * @return this
   */
  public StoreOptions unitKeys(KeyArray keys) {
    unitKeys = keys;
    return this;
  }

  /**
   * Reads the blocks after what a stream holds at submit. Without one they are ready.
   *
   * @param handle a CUstream or cudaStream_t of the cache's device; 0 is the legacy one
   * @return this
   */
  public StoreOptions stream(long handle) {
    stream = handle;
    hasStream = true;
    return this;
  }

  Status[] statuses() {
    return itemStatus;
  }

  Struct write(Call call, int nKeys, int units) {
    if (unitKeys != null && unitKeys.size() != (long) nKeys * units) {
      throw new IllegalArgumentException(unitKeys.size() + " unit keys for " + nKeys + " keys of " + units + " units");
    }
    Struct out = call.memory(SIZEOF_store_options);
    Call.check(kvbm.kvbm_store_options_init(out.address, SIZEOF_store_options));
    out.put(store_options_priority, priority.number());
    out.put(store_options_parent, call.key(parent));
    out.put(store_options_unchained, unchained ? 1 : 0);
    out.put(store_options_positions, Position.write(call, positions, nKeys));
    out.put(store_options_timeout_ns, timeoutNs);
    if (unitKeys != null) out.put(store_options_unit_keys, unitKeys.address(call));
    out.put(store_options_stream, stream);
    out.put(store_options_has_stream, hasStream ? 1 : 0);
    return out;
  }
}
