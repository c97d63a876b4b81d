// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** Receives the library's log lines. */
@FunctionalInterface
public interface LogListener {
  /**
   * Takes one line. Called on any thread, also on one of the library's; it must not call the library. What it throws
   * is dropped.
   *
   * @param level 1 error, 2 warning, 3 info, 4 debug
   * @param component the part of the library that speaks
   * @param text the line
   */
  void line(int level, String component, String text);
}
