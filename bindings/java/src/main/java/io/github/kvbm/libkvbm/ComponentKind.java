// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Kinds of components. */
public enum ComponentKind implements Numbered {
  /** K and V of every token. */
  ATTENTION(KVBM_COMPONENT_ATTENTION),

  /** K and V; only the last window_tokens matter. */
  WINDOW(KVBM_COMPONENT_WINDOW),

  /** One latent row per token (MLA). */
  LATENT(KVBM_COMPONENT_LATENT),

  /** A recurrent state; only the last block's matters. */
  STATE(KVBM_COMPONENT_STATE);

  private final int number;

  ComponentKind(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  /** The one of this number; as the library, refuses a number that is none. */
  static ComponentKind of(int number) {
    return Numbered.of(values(), number, "kind of component");
  }
}
