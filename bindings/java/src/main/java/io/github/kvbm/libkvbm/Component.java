// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * One component of a model, whole: all layers and heads, before sharding.
 *
 * @param kind one of the kinds of this class
 * @param element one of the elements of this class
 * @param layers layers that have this component
 * @param heads KV heads in all; 1 for latent and state
 * @param headDim elements of a head's row; the latent's width; unused for state
 * @param windowTokens of a window
 * @param stateBytes of a state: bytes per layer and block
 */
public record Component(
    int kind, int element, int layers, int heads, int headDim, int windowTokens, long stateBytes) {
  /** Kind: K and V of every token. */
  public static final int ATTENTION = KVBM_COMPONENT_ATTENTION;

  /** Kind: K and V; only the last window_tokens matter. */
  public static final int WINDOW = KVBM_COMPONENT_WINDOW;

  /** Kind: one latent row per token (MLA). */
  public static final int LATENT = KVBM_COMPONENT_LATENT;

  /** Kind: a recurrent state; only the last block's matters. */
  public static final int STATE = KVBM_COMPONENT_STATE;

  /** Element: opaque bytes. */
  public static final int BYTES = KVBM_ELEMENT_BYTES;

  /** Element: bfloat16. */
  public static final int BF16 = KVBM_ELEMENT_BF16;

  /** Element: IEEE half. */
  public static final int FP16 = KVBM_ELEMENT_FP16;

  /** Element: IEEE single. */
  public static final int FP32 = KVBM_ELEMENT_FP32;

  /** Element: 8 bits, E4M3. */
  public static final int FP8_E4M3 = KVBM_ELEMENT_FP8_E4M3;

  /** Element: 8 bits, E5M2. */
  public static final int FP8_E5M2 = KVBM_ELEMENT_FP8_E5M2;

  /** Element: 8-bit integer. */
  public static final int INT8 = KVBM_ELEMENT_INT8;

  /**
   * K and V of every token.
   *
   * @param element one of the elements
   * @param layers number of layers
   * @param heads number of KV heads
   * @param headDim elements of a head's row
   * @return the component
   */
  public static Component attention(int element, int layers, int heads, int headDim) {
    return new Component(ATTENTION, element, layers, heads, headDim, 0, 0);
  }

  /**
   * K and V of the last tokens.
   *
   * @param element one of the elements
   * @param layers number of layers
   * @param heads number of KV heads
   * @param headDim elements of a head's row
   * @param windowTokens how many tokens matter
   * @return the component
   */
  public static Component window(int element, int layers, int heads, int headDim, int windowTokens) {
    return new Component(WINDOW, element, layers, heads, headDim, windowTokens, 0);
  }

  /**
   * One latent row per token.
   *
   * @param element one of the elements
   * @param layers number of layers
   * @param width elements of a row
   * @return the component
   */
  public static Component latent(int element, int layers, int width) {
    return new Component(LATENT, element, layers, 1, width, 0, 0);
  }

  /**
   * A recurrent state.
   *
   * @param layers number of layers
   * @param stateBytes bytes per layer and block
   * @return the component
   */
  public static Component state(int layers, long stateBytes) {
    return new Component(STATE, BYTES, layers, 1, 0, 0, stateBytes);
  }

  void write(Struct out, int at) {
    out.put(at + component_kind, kind);
    out.put(at + component_element, element);
    out.put(at + component_layers, layers);
    out.put(at + component_heads, heads);
    out.put(at + component_head_dim, headDim);
    out.put(at + component_window_tokens, windowTokens);
    out.put(at + component_state_bytes, stateBytes);
  }
}
