// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Behaviour of a store when the quota is used up. */
public enum QuotaMode implements Numbered {
  /** Evicts blocks of its namespace. */
  EVICT(KVBM_QUOTA_EVICT),

  /** Fails. */
  REJECT(KVBM_QUOTA_REJECT);

  private final int number;

  QuotaMode(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  /** The one of this number; as the library, refuses a number that is none. */
  static QuotaMode of(int number) {
    return Numbered.of(values(), number, "quota mode");
  }
}
