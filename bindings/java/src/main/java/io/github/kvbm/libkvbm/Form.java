// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * How an engine orders its cache. The axes are given outermost first; dim, the row of one head of one token, is always
 * innermost. Where an axis is missing, tensors are given for each of its values.
 */
public enum Form implements Numbered {
  /** [K,V][block][token][head][dim]. */
  NHD(KVBM_FORM_NHD),

  /** [K,V][block][head][token][dim]. */
  HND(KVBM_FORM_HND),

  /** [block][K,V][token][head][dim]. */
  BLOCKS_NHD(KVBM_FORM_BLOCKS_NHD),

  /** [block][K,V][head][token][dim]. */
  BLOCKS_HND(KVBM_FORM_BLOCKS_HND),

  /** [block][token][head][K dim, V dim]. */
  PACKED_NHD(KVBM_FORM_PACKED_NHD),

  /** [block][head][token][K dim, V dim]; vLLM from 0.32. */
  PACKED_HND(KVBM_FORM_PACKED_HND),

  /** [block][token][head][dim]; also latents (MLA), with one tensor per layer. */
  SPLIT_NHD(KVBM_FORM_SPLIT_NHD),

  /** [block][head][token][dim]. */
  SPLIT_HND(KVBM_FORM_SPLIT_HND),

  /** [layer][K,V][block][token][head][dim]. */
  LAYERS_NHD(KVBM_FORM_LAYERS_NHD),

  /** [layer][K,V][block][head][token][dim]. */
  LAYERS_HND(KVBM_FORM_LAYERS_HND),

  /** [block][layer][K,V][token][head][dim]. */
  CROSS_NHD(KVBM_FORM_CROSS_NHD),

  /** [block][layer][K,V][head][token][dim]. */
  CROSS_HND(KVBM_FORM_CROSS_HND),

  /** [block][layer][token][head][K dim, V dim]. */
  CROSS_PACKED_LNH(KVBM_FORM_CROSS_PACKED_LNH),

  /** [block][layer][head][token][K dim, V dim]. */
  CROSS_PACKED_LHN(KVBM_FORM_CROSS_PACKED_LHN),

  /** [block][head][layer][token][K dim, V dim]. */
  CROSS_PACKED_HLN(KVBM_FORM_CROSS_PACKED_HLN),

  /** [layer][head][block][token][K dim, V dim]. */
  HEADS_PACKED(KVBM_FORM_HEADS_PACKED),

  /** [K,V][layer][block * token][head][dim]. */
  SGLANG_LAYER_FIRST(KVBM_FORM_SGLANG_LAYER_FIRST),

  /** [K,V][block * token][layer][head][dim]. */
  SGLANG_PAGE_FIRST(KVBM_FORM_SGLANG_PAGE_FIRST),

  /** [K,V][block][layer][token][head][dim]. */
  SGLANG_PAGE_FIRST_DIRECT(KVBM_FORM_SGLANG_PAGE_FIRST_DIRECT),

  /** [K,V][block][head][token][layer][dim]. */
  SGLANG_PAGE_HEAD(KVBM_FORM_SGLANG_PAGE_HEAD),

  /** N tensors, [block][bytes]; a record is the block's pages one after the other; never re-sliced. */
  OPAQUE(KVBM_FORM_OPAQUE);

  private final int number;

  Form(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  /** The one of this number; as the library, refuses a number that is none. */
  static Form of(int number) {
    return Numbered.of(values(), number, "form");
  }
}
