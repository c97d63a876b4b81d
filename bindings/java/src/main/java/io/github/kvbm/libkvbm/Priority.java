// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Hints about blocks, for the eviction policies. */
public enum Priority implements Numbered {
  /** Nothing. */
  NORMAL(KVBM_PRIORITY_NORMAL),

  /** Not used again. */
  ONE_SHOT(KVBM_PRIORITY_ONE_SHOT),

  /** The conversation goes on. */
  CONTINUES(KVBM_PRIORITY_CONTINUES),

  /** Stays as long as possible. */
  KEEP(KVBM_PRIORITY_KEEP);

  private final int number;

  Priority(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  /** The one of this number; as the library, refuses a number that is none. */
  static Priority of(int number) {
    return Numbered.of(values(), number, "priority");
  }
}
