// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** What counts as a hit of a lookup. */
public enum LookupMode {
  /** The longest prefix. */
  PREFIX(LookupOptions.PREFIX),

  /** Each key by itself. */
  EACH(LookupOptions.EACH),

  /** The first key that is there. */
  ANY(LookupOptions.ANY);

  final int number;

  LookupMode(int number) {
    this.number = number;
  }
}
