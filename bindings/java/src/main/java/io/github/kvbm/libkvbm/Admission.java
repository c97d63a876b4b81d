// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Which blocks come to a tier below the host. */
public enum Admission implements Numbered {
  /** Every block of the host comes here. */
  ALL(KVBM_ADMIT_ALL),

  /** Blocks that the tier above evicts. */
  ON_EVICTION(KVBM_ADMIT_ON_EVICTION),

  /** Blocks used a given number of times. */
  AFTER_USES(KVBM_ADMIT_AFTER_USES),

  /** Blocks used often. */
  FREQUENCY(KVBM_ADMIT_FREQUENCY),

  /** Only blocks that {@link Manager#offload} sends. */
  ON_REQUEST(KVBM_ADMIT_ON_REQUEST);

  private final int number;

  Admission(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  /** The one of this number; as the library, refuses a number that is none. */
  static Admission of(int number) {
    return Numbered.of(values(), number, "admission");
  }
}
