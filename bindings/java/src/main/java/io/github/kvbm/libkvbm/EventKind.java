// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** What a {@link BlockEvent} says. */
public enum EventKind implements Numbered {
  /** It is in this tier now. */
  STORED(KVBM_EVENT_STORED),

  /** It is not in this tier any more. */
  REMOVED(KVBM_EVENT_REMOVED),

  /** Everything went. */
  CLEARED(KVBM_EVENT_CLEARED),

  /** The tier was taken out of service. */
  DISABLED(KVBM_EVENT_DISABLED),

  /** One that this version does not know. */
  UNKNOWN(-1);

  private static final EventKind[] ALL = values();

  private final int number;

  EventKind(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  static EventKind of(int number) {
    return Numbered.of(ALL, number, UNKNOWN);
  }
}
