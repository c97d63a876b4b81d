// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Kinds of {@link BlockEvent}. */
public enum EventKind implements Numbered {
  /** Stored in this tier. */
  STORED(KVBM_EVENT_STORED),

  /** Removed from this tier. */
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
