// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import java.util.Objects;

/**
 * One component of a model, whole: all layers and heads, before sharding.
 *
 * @param kind kind of the component
 * @param element type of its elements; BYTES for state
 * @param layers layers that have this component
 * @param heads KV heads in all; 1 for latent and state
 * @param headDim elements of a head's row; the latent's width; 0 for state
 * @param windowTokens of a window
 * @param stateBytes of a state: bytes per layer and block
 */
public record Component(
    ComponentKind kind, Element element, int layers, int heads, int headDim, int windowTokens, long stateBytes) {
  /**
   * Checks that a kind and an element are given, and that no number is negative.
   *
   * @param kind kind of the component
   * @param element type of its elements; BYTES for state
   * @param layers layers that have this component
   * @param heads KV heads in all; 1 for latent and state
   * @param headDim elements of a head's row; the latent's width; 0 for state
   * @param windowTokens of a window
   * @param stateBytes of a state: bytes per layer and block
   */
  public Component {
    Objects.requireNonNull(kind, "kind");
    Objects.requireNonNull(element, "element");
    Call.size(layers, "layers");
    Call.size(heads, "heads");
    Call.size(headDim, "headDim");
    Call.size(windowTokens, "windowTokens");
    Call.size(stateBytes, "stateBytes");
  }

  /**
   * K and V of every token.
   *
   * @param element type of its elements
   * @param layers number of layers
   * @param heads number of KV heads
   * @param headDim elements of a head's row
   * @return the component
   */
  public static Component attention(Element element, int layers, int heads, int headDim) {
    return new Component(ComponentKind.ATTENTION, element, layers, heads, headDim, 0, 0);
  }

  /**
   * K and V of the last tokens.
   *
   * @param element type of its elements
   * @param layers number of layers
   * @param heads number of KV heads
   * @param headDim elements of a head's row
   * @param windowTokens number of tokens that matter
   * @return the component
   */
  public static Component window(Element element, int layers, int heads, int headDim, int windowTokens) {
    return new Component(ComponentKind.WINDOW, element, layers, heads, headDim, windowTokens, 0);
  }

  /**
   * One latent row per token.
   *
   * @param element type of its elements
   * @param layers number of layers
   * @param width elements of a row
   * @return the component
   */
  public static Component latent(Element element, int layers, int width) {
    return new Component(ComponentKind.LATENT, element, layers, 1, width, 0, 0);
  }

  /**
   * A recurrent state.
   *
   * @param layers number of layers
   * @param stateBytes bytes per layer and block
   * @return the component
   */
  public static Component state(int layers, long stateBytes) {
    return new Component(ComponentKind.STATE, Element.BYTES, layers, 1, 0, 0, stateBytes);
  }

  void write(Struct out, int at) {
    out.put(at + component_kind, kind.number());
    out.put(at + component_element, element.number());
    out.put(at + component_layers, layers);
    out.put(at + component_heads, heads);
    out.put(at + component_head_dim, headDim);
    out.put(at + component_window_tokens, windowTokens);
    out.put(at + component_state_bytes, stateBytes);
  }
}
