// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * The part of a component that a record holds.
 *
 * @param firstLayer first layer
 * @param layers number of layers
 * @param firstHead first head
 * @param heads number of heads
 * @param replicated whether every rank of the group holds the same (MLA latents)
 */
public record Shard(int firstLayer, int layers, int firstHead, int heads, boolean replicated) {
  /** All layers and heads. */
  public static final Shard WHOLE = new Shard(0, 0, 0, 0, false);

  /**
   * Checks that the numbers fit into 16 bits.
   *
   * @param firstLayer first layer
   * @param layers number of layers
   * @param firstHead first head
   * @param heads number of heads
   * @param replicated whether every rank of the group holds the same
   */
  public Shard {
    if (((firstLayer | layers | firstHead | heads) & ~0xffff) != 0) {
      throw new IllegalArgumentException("layers and heads are numbers from 0 to 65,535");
    }
  }

  void write(Struct out, int at) {
    out.put(at + shard_first_layer, (short) firstLayer);
    out.put(at + shard_layers, (short) layers);
    out.put(at + shard_first_head, (short) firstHead);
    out.put(at + shard_heads, (short) heads);
    out.put(at + shard_replicated, (short) (replicated ? 1 : 0));
  }
}
