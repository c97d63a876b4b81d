// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/**
 * Role of this process in a shared tier set.
 *
 * @param role the role
 * @param ownerPid 0 = none
 * @param clients number of clients, on the owner
 * @param takeovers 1: this process became the owner after another owner
 * @param ownersLost links to an owner that have ended
 * @param silentLookups lookups that continued without the owner's answer
 */
public record ShareState(
    ShareRole role, long ownerPid, long clients, long takeovers, long ownersLost, long silentLookups) {}
