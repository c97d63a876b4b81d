// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;

/** Status of a call or of an item of a batch. */
public enum Status implements Numbered {
  /** Done. */
  OK(KVBM_OK),

  /** Some items of the batch failed; read their statuses. */
  PARTIAL(KVBM_PARTIAL),

  /** An argument is not valid. */
  INVALID(KVBM_ERR_INVALID),

  /** The hold, pin, operation or offer has ended. */
  STALE(KVBM_ERR_STALE),

  /** Belongs to another manager. */
  FOREIGN(KVBM_ERR_FOREIGN),

  /** Not in a state that allows this. */
  STATE(KVBM_ERR_STATE),

  /** A forked child uses an object of its parent. */
  FORKED(KVBM_ERR_FORKED),

  /** The configuration is wrong. */
  CONFIG(KVBM_ERR_CONFIG),

  /** Used by another owner. */
  IN_USE(KVBM_ERR_IN_USE),

  /** Exists already. */
  EXISTS(KVBM_ERR_EXISTS),

  /** No memory of a tier is free. */
  NO_ROOM(KVBM_ERR_NO_ROOM),

  /** The quota of the namespace is used up. */
  QUOTA(KVBM_ERR_QUOTA),

  /** Not now; again later. */
  AGAIN(KVBM_ERR_AGAIN),

  /** The system has no memory. */
  NO_MEMORY(KVBM_ERR_NO_MEMORY),

  /** The disk is full. */
  DISK_FULL(KVBM_ERR_DISK_FULL),

  /** As many as the library counts are in use: pins, holds, namespaces, quotas. */
  LIMIT(KVBM_ERR_LIMIT),

  /** Not done in time. */
  DEADLINE(KVBM_ERR_DEADLINE),

  /** Cancelled by this side or the other. */
  CANCELLED(KVBM_ERR_CANCELLED),

  /** The process or node that has it is gone. */
  OWNER_GONE(KVBM_ERR_OWNER_GONE),

  /** The other side has closed. */
  CLOSED(KVBM_ERR_CLOSED),

  /** Not here. */
  MISS(KVBM_ERR_MISS),

  /** Stored bytes failed verification. */
  DAMAGED(KVBM_ERR_DAMAGED),

  /** Both sides do not mean the same. */
  MISMATCH(KVBM_ERR_MISMATCH),

  /** This build or object cannot do it. */
  UNSUPPORTED(KVBM_ERR_UNSUPPORTED),

  /** Another version. */
  VERSION(KVBM_ERR_VERSION),

  /** The system does not allow it. */
  PERMISSION(KVBM_ERR_PERMISSION),

  /** A fault of the library. */
  INTERNAL(KVBM_ERR_INTERNAL),

  /** Reading or writing failed. */
  IO(KVBM_ERR_IO),

  /** The tier was taken out of service. */
  TIER_DISABLED(KVBM_ERR_TIER_DISABLED),

  /** One that this version does not know. */
  UNKNOWN(Integer.MIN_VALUE);

  private static final Status[] ALL = values();

  private final int number;

  Status(int number) {
    this.number = number;
  }

  /** {@return its number in kvbm.h} */
  @Override
  public int number() {
    return number;
  }

  static Status of(int number) {
    return Numbered.of(ALL, number, UNKNOWN);
  }

  /** {@return its name in kvbm.h, as KVBM_ERR_NO_ROOM} */
  public String symbol() {
    return kvbm.kvbm_status_name(number);
  }

  /** {@return one sentence: what it means and what to do} */
  public String text() {
    return kvbm.kvbm_status_text(number);
  }
}
