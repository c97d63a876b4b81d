// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.time.Duration;
import java.util.List;
import java.util.Objects;

/** Options of {@link Cache#load}. What is not set has its default. */
public final class LoadOptions {
  private int firstKey;
  private boolean anyPosition;
  private int firstLayer;
  private int nLayers;
  private boolean keepBelow;
  private List<Position> positions;
  private long timeoutNs = Kvbm.FOREVER;
  private long computeBlockNs;
  private Status[] itemStatus;
  private long stream;
  private boolean hasStream;
  private WaitLayers waitLayers = WaitLayers.OFF;

  /** From the first key, all layers, exact positions, blocks from below are kept in the host tier, no deadline. */
  public LoadOptions() {}

  /**
   * Skips keys of the match.
   *
   * @param count how many
   * @return this
   */
  public LoadOptions firstKey(int count) {
    firstKey = Call.size(count, "firstKey");
    return this;
  }

  /**
   * Uses content-keyed blocks at any position: the caller rotates them again.
   *
   * @param on whether to
   * @return this
   */
  public LoadOptions anyPosition(boolean on) {
    anyPosition = on;
    return this;
  }

  /**
   * Loads some layers alone.
   *
   * @param first first layer of the part's shard
   * @param count how many; 0 = all from there on
   * @return this
   */
  public LoadOptions layers(int first, int count) {
    firstLayer = Call.size(first, "firstLayer");
    nLayers = Call.size(count, "layers");
    return this;
  }

  /**
   * Does not keep blocks from lower tiers in the host tier.
   *
   * @param on whether not to
   * @return this
   */
  public LoadOptions keepBelow(boolean on) {
    keepBelow = on;
    return this;
  }

  /**
   * Sets where content-keyed blocks will stand.
   *
   * @param list one for each key that is loaded; null = none
   * @return this
   */
  public LoadOptions positions(List<Position> list) {
    positions = list == null ? null : List.copyOf(list);
    return this;
  }

  /**
   * Sets how long it may take.
   *
   * @param time null = as long as it takes
   * @return this
   */
  public LoadOptions timeout(Duration time) {
    timeoutNs = Call.nanoseconds(time, "timeout");
    return this;
  }

  /**
   * Says what the engine would need to compute one of its blocks. The load then goes as far as it wins, and gives up
   * when it is late: what is left to compute is {@code KVBM_ERR_DEADLINE}, and the whole {@code KVBM_PARTIAL}.
   *
   * @param time null = unknown: everything is loaded, whatever it takes
   * @return this
   */
  public LoadOptions computeBlock(Duration time) {
    computeBlockNs = time == null ? 0 : Call.nanoseconds(time, "computeBlock");
    return this;
  }

  /**
   * Asks a call that waits what became of each key; an {@link Operation} has statuses of its own.
   *
   * @param into filled by the call; as long as the keys that are loaded
   * @return this
   */
  public LoadOptions itemStatus(Status[] into) {
    itemStatus = into;
    return this;
  }

  /**
   * Writes the blocks after what a stream holds at submit. Without one it begins at once.
   *
   * @param handle a CUstream or cudaStream_t of the cache's device; 0 is the legacy one
   * @return this
   */
  public LoadOptions stream(long handle) {
    stream = handle;
    hasStream = true;
    return this;
  }

  /**
   * Lets layers land in their order, for {@link Cache#waitLayer}; of loads that are submitted.
   *
   * @param how how streams wait for them
   * @return this
   */
  public LoadOptions waitLayers(WaitLayers how) {
    waitLayers = Objects.requireNonNull(how, "how");
    return this;
  }

  Status[] statuses() {
    return itemStatus;
  }

  Struct write(Call call, int nKeys) {
    Struct out = call.memory(SIZEOF_load_options);
    Call.check(kvbm.kvbm_load_options_init(out.address, SIZEOF_load_options));
    out.put(load_options_first_key, firstKey);
    out.put(load_options_any_position, anyPosition ? 1 : 0);
    out.put(load_options_first_layer, firstLayer);
    out.put(load_options_n_layers, nLayers);
    out.put(load_options_keep_below, keepBelow ? 1 : 0);
    out.put(load_options_positions, Position.write(call, positions, nKeys));
    out.put(load_options_timeout_ns, timeoutNs);
    out.put(load_options_compute_block_ns, computeBlockNs);
    out.put(load_options_stream, stream);
    out.put(load_options_has_stream, hasStream ? 1 : 0);
    out.put(load_options_wait_layers, waitLayers.number());
    return out;
  }
}
