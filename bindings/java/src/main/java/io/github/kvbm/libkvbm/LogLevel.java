// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/** Levels of log lines. */
public enum LogLevel implements Numbered {
  /** Errors alone. */
  ERROR(KVBM_LOG_ERROR),

  /** Errors and warnings. */
  WARNING(KVBM_LOG_WARNING),

  /** Information. */
  INFO(KVBM_LOG_INFO),

  /** Everything. */
  DEBUG(KVBM_LOG_DEBUG),

  /** One that this version does not know. */
  UNKNOWN(-1);

  private static final LogLevel[] ALL = values();

  private final int number;

  LogLevel(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  static LogLevel of(int number) {
    return Numbered.of(ALL, number, UNKNOWN);
  }
}
