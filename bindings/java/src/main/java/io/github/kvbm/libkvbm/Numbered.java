// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** A value that has a number in kvbm.h. */
interface Numbered {
  int number();

  static <E extends Numbered> E of(E[] all, int number, E otherwise) {
    for (E one : all) {
      if (one.number() == number) return one;
    }
    return otherwise;
  }

  static <E extends Numbered> E of(E[] all, int number, String what) {
    E found = of(all, number, (E) null);
    if (found == null) throw new CallerException(Status.INVALID.number(), "no " + what + " has the number " + number);
    return found;
  }
}
