// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** Receives the library's log lines. */
@FunctionalInterface
public interface LogListener {
  /**
   * Takes one line. Called on any thread, also on one of the library's; it must not call the library. What it throws
   * is dropped.
   *
   * @param level how grave it is
   * @param component the part of the library that speaks
   * @param text the line
   */
  void line(LogLevel level, String component, String text);
}
