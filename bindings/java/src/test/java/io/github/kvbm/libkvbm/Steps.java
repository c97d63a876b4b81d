// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** The steps of the runner, by name. */
final class Steps {
  /** Does a step and says its results. */
  interface Step {
    Map<String, Object> run(Arguments in) throws Exception;
  }

  private final Map<String, Step> known = new TreeMap<>();

  /** The user_data of submissions, which the idiomatic layer uses for itself. */
  final Map<Operation, Long> userData = new HashMap<>();

  Steps() {
    CoreSteps.add(this);
    CodecSteps.add(this);
    PoolSteps.add(this);
    CacheSteps.add(this);
    SeeingSteps.add(this);
    SessionSteps.add(this);
    DeviceSteps.add(this);
  }

  void put(String name, Step step) {
    known.put(name, step);
  }

  Map<String, Object> run(String name, Arguments in) throws Exception {
    Step step = known.get(name);
    if (step == null) throw new AssertionError("this runner knows no step " + name);
    Map<String, Object> results = step.run(in);
    in.noneLeft();
    return results;
  }

  /** Names and values by turns. */
  static Map<String, Object> results(Object... pairs) {
    Map<String, Object> out = new HashMap<>();
    for (int i = 0; i < pairs.length; i += 2) out.put((String) pairs[i], pairs[i + 1]);
    return out;
  }

  static List<Object> hex(KeyArray keys) {
    return List.copyOf(keys.toList().stream().map(Key::toString).toList());
  }

  /** The text of a row, in lower case. */
  static String shown(Object row) {
    return row.toString().toLowerCase();
  }

  static long unsigned(int value) {
    return Integer.toUnsignedLong(value);
  }

  static String decimal(long value) {
    return Long.toUnsignedString(value);
  }
}
