// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import io.github.kvbm.libkvbm.raw.kvbm;

/** The library as a whole. */
public final class Kvbm {
  /** No deadline. */
  static final long FOREVER = -1L;

  /** In a list of block ids: none. */
  public static final int NO_BLOCK = -1;

  /** The tier of a key that was missed. */
  public static final int NO_TIER = -1;

  private Kvbm() {}

  /** {@return the version of the library that runs: major * 1000000 + minor * 1000 + patch} */
  public static int version() {
    return (int) kvbm.kvbm_version();
  }

  /** {@return the version of the library that runs, e.g. 0.1.0} */
  public static String versionString() {
    return kvbm.kvbm_version_string();
  }

  /** {@return the table of all configuration options as Markdown} */
  public static String configReference() {
    return Call.twoPhase(kvbm::kvbm_config_reference);
  }

  /**
   * Names a tier.
   *
   * @param tier its number
   * @return "host", "tier 1" and so on, or "no tier"
   */
  public static String tierName(int tier) {
    return tier == 0 ? "host" : tier == NO_TIER ? "no tier" : "tier " + Integer.toUnsignedString(tier);
  }
}
