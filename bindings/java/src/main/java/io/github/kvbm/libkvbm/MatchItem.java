// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/**
 * One key of a match.
 *
 * @param tier slowest tier that a part of the key comes from; {@link Kvbm#NO_TIER} = missed
 * @param partsNeeded bit i: part i is needed and was found
 * @param bytes payload bytes to move for the key
 * @param belowBytes part of the bytes that is not in the host tier yet
 */
public record MatchItem(int tier, int partsNeeded, long bytes, long belowBytes) {
  /** {@return what is known, the tier by its name} */
  @Override
  public String toString() {
    return "MatchItem[" + Kvbm.tierName(tier) + ", parts " + partsNeeded + ", " + bytes + " bytes]";
  }
}
