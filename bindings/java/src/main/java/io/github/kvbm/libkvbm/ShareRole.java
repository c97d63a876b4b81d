// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Roles of a process in a shared tier set. */
public enum ShareRole implements Numbered {
  /** The tier set is not shared. */
  OFF(KVBM_SHARE_OFF),

  /** This process owns it. */
  OWNER(KVBM_SHARE_OWNER),

  /** Another process owns it. */
  CLIENT(KVBM_SHARE_CLIENT),

  /** A client that is looking for the next owner. */
  NO_OWNER(KVBM_SHARE_NO_OWNER),

  /** One that this version does not know. */
  UNKNOWN(-1);

  private static final ShareRole[] ALL = values();

  private final int number;

  ShareRole(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  static ShareRole of(int number) {
    return Numbered.of(ALL, number, UNKNOWN);
  }
}
