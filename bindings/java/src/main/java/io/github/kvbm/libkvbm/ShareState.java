// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * What this process is in a shared tier set.
 *
 * @param role one of the roles of this class
 * @param ownerPid 0: none
 * @param clients of this owner
 * @param takeovers 1: this process became the owner after another one
 * @param ownersLost links to an owner that ended
 * @param silentLookups lookups that went on without the owner's answer
 */
public record ShareState(
    int role, long ownerPid, long clients, long takeovers, long ownersLost, long silentLookups) {
  /** The tier set is not shared. */
  public static final int OFF = KVBM_SHARE_OFF;

  /** This process owns it. */
  public static final int OWNER = KVBM_SHARE_OWNER;

  /** Another process owns it. */
  public static final int CLIENT = KVBM_SHARE_CLIENT;

  /** A client that is looking for the next owner. */
  public static final int NO_OWNER = KVBM_SHARE_NO_OWNER;
}
