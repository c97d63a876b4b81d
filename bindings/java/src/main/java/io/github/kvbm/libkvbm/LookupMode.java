// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Modes of a lookup. */
public enum LookupMode implements Numbered {
  /** The longest prefix. */
  PREFIX(KVBM_LOOKUP_PREFIX),

  /** Each key by itself. */
  EACH(KVBM_LOOKUP_EACH),

  /** The first key that is there. */
  ANY(KVBM_LOOKUP_ANY);

  private final int number;

  LookupMode(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  /** The one of this number; as the library, refuses a number that is none. */
  static LookupMode of(int number) {
    return Numbered.of(values(), number, "lookup mode");
  }
}
