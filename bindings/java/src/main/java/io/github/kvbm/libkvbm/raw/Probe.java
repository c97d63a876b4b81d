// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm.raw;

/** Natives of a library of their own, which is not linked with libkvbm. */
final class Probe {
  private Probe() {}

  /** {@return the version of the header that the wrapper was made from} */
  static native int header();

  /** {@return the version of the library in a file, or 0} */
  static native int library(byte[] path);
}
