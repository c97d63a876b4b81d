// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/**
 * What is known of one key of a match.
 *
 * @param tier the slowest tier that a part of it must come from; {@link Kvbm#NO_TIER} = missed
 * @param partsNeeded bit i: part i is needed and there
 * @param bytes payload bytes to move for it
 * @param belowBytes of these, bytes that are not in the host tier yet
 */
public record MatchItem(int tier, int partsNeeded, long bytes, long belowBytes) {
  /** {@return what is known, the tier by its name} */
  @Override
  public String toString() {
    return "MatchItem[" + Kvbm.tierName(tier) + ", parts " + partsNeeded + ", " + bytes + " bytes]";
  }
}
