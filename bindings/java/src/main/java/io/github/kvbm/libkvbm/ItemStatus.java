// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

/** The item statuses of a call that returns when they are written: memory for the library, then the caller's array. */
final class ItemStatus {
  private final Status[] into;
  private final Struct memory;

  ItemStatus(Call call, Status[] into, int n) {
    if (into != null && into.length != n) {
      throw new IllegalArgumentException("room for " + into.length + " item statuses, of " + n + " items");
    }
    this.into = into;
    this.memory = into == null ? null : call.memory(4L * n);
  }

  long address() {
    return memory == null ? 0 : memory.address;
  }

  void read() {
    if (into == null) return;
    for (int i = 0; i < into.length; ++i) into[i] = Status.of(memory.getInt(4 * i));
  }
}
