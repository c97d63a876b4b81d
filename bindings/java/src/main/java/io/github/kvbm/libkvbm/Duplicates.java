// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Treatment of a key that exists already. */
public enum Duplicates implements Numbered {
  /** A key that is there already gives its block and frees yours. */
  REUSE(KVBM_DUPLICATE_REUSE),

  /** Yours stays private until released, and does not become findable. */
  KEEP(KVBM_DUPLICATE_KEEP);

  private final int number;

  Duplicates(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  /** The one of this number; as the library, refuses a number that is none. */
  static Duplicates of(int number) {
    return Numbered.of(values(), number, "way with duplicates");
  }
}
