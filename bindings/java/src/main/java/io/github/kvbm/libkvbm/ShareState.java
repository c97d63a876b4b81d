// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/**
 * What this process is in a shared tier set.
 *
 * @param role what it is
 * @param ownerPid 0: none
 * @param clients of this owner
 * @param takeovers 1: this process became the owner after another one
 * @param ownersLost links to an owner that ended
 * @param silentLookups lookups that went on without the owner's answer
 */
public record ShareState(
    ShareRole role, long ownerPid, long clients, long takeovers, long ownersLost, long silentLookups) {}
