// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import io.github.kvbm.libkvbm.raw.kvbm;
import io.github.kvbm.libkvbm.raw.kvbmConstants;

/** Statuses of calls, completions and items: 0 done, above 0 partly done, below 0 failed in bands of 100. */
public final class Status {
  /** Done. */
  public static final int OK = kvbmConstants.KVBM_OK;

  /** Some items of the batch failed; read their statuses. */
  public static final int PARTIAL = kvbmConstants.KVBM_PARTIAL;

  /** An argument is not valid. */
  public static final int INVALID = kvbmConstants.KVBM_ERR_INVALID;

  /** The hold, pin, operation or offer has ended. */
  public static final int STALE = kvbmConstants.KVBM_ERR_STALE;

  /** It belongs to another manager. */
  public static final int FOREIGN = kvbmConstants.KVBM_ERR_FOREIGN;

  /** Not in a state that allows this. */
  public static final int STATE = kvbmConstants.KVBM_ERR_STATE;

  /** A forked child uses an object of its parent. */
  public static final int FORKED = kvbmConstants.KVBM_ERR_FORKED;

  /** The configuration is wrong. */
  public static final int CONFIG = kvbmConstants.KVBM_ERR_CONFIG;

  /** Someone else uses it. */
  public static final int IN_USE = kvbmConstants.KVBM_ERR_IN_USE;

  /** It is there already. */
  public static final int EXISTS = kvbmConstants.KVBM_ERR_EXISTS;

  /** No memory of a tier is free. */
  public static final int NO_ROOM = kvbmConstants.KVBM_ERR_NO_ROOM;

  /** The quota of the namespace is used up. */
  public static final int QUOTA = kvbmConstants.KVBM_ERR_QUOTA;

  /** Not now; again later. */
  public static final int AGAIN = kvbmConstants.KVBM_ERR_AGAIN;

  /** The system has no memory. */
  public static final int NO_MEMORY = kvbmConstants.KVBM_ERR_NO_MEMORY;

  /** The disk is full. */
  public static final int DISK_FULL = kvbmConstants.KVBM_ERR_DISK_FULL;

  /** As many as the library counts are in use: pins, holds, namespaces, quotas. */
  public static final int LIMIT = kvbmConstants.KVBM_ERR_LIMIT;

  /** Not done in time. */
  public static final int DEADLINE = kvbmConstants.KVBM_ERR_DEADLINE;

  /** Someone gave up. */
  public static final int CANCELLED = kvbmConstants.KVBM_ERR_CANCELLED;

  /** The process or node that has it is gone. */
  public static final int OWNER_GONE = kvbmConstants.KVBM_ERR_OWNER_GONE;

  /** The other side has closed. */
  public static final int CLOSED = kvbmConstants.KVBM_ERR_CLOSED;

  /** It is not here. */
  public static final int MISS = kvbmConstants.KVBM_ERR_MISS;

  /** What came back is not what was stored. */
  public static final int DAMAGED = kvbmConstants.KVBM_ERR_DAMAGED;

  /** Both sides do not mean the same. */
  public static final int MISMATCH = kvbmConstants.KVBM_ERR_MISMATCH;

  /** This build or object cannot do it. */
  public static final int UNSUPPORTED = kvbmConstants.KVBM_ERR_UNSUPPORTED;

  /** It is of another version. */
  public static final int VERSION = kvbmConstants.KVBM_ERR_VERSION;

  /** The system does not allow it. */
  public static final int PERMISSION = kvbmConstants.KVBM_ERR_PERMISSION;

  /** A fault of the library. */
  public static final int INTERNAL = kvbmConstants.KVBM_ERR_INTERNAL;

  /** Reading or writing failed. */
  public static final int IO = kvbmConstants.KVBM_ERR_IO;

  /** The tier was taken out of service. */
  public static final int TIER_DISABLED = kvbmConstants.KVBM_ERR_TIER_DISABLED;

  private Status() {}

  /**
   * Names a status as kvbm.h does.
   *
   * @param status any number
   * @return the symbolic name, e.g. KVBM_ERR_NO_ROOM
   */
  public static String name(int status) {
    return kvbm.kvbm_status_name(status);
  }

  /**
   * Says what a status means and what to do.
   *
   * @param status any number
   * @return one sentence
   */
  public static String text(int status) {
    return kvbm.kvbm_status_text(status);
  }
}
