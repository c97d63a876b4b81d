// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.nio.ByteBuffer;

/** A piece of direct memory in the form of a C struct or array; fields are named by their offsets. */
final class Struct {
  final ByteBuffer memory;
  final int at;
  final long address;

  Struct(ByteBuffer memory, int at, long address) {
    this.memory = memory;
    this.at = at;
    this.address = address;
  }

  Struct put(int field, int value) {
    memory.putInt(at + field, value);
    return this;
  }

  Struct put(int field, long value) {
    memory.putLong(at + field, value);
    return this;
  }

  Struct put(int field, short value) {
    memory.putShort(at + field, value);
    return this;
  }

  Struct put(int field, byte[] value) {
    memory.put(at + field, value);
    return this;
  }

  int getInt(int field) {
    return memory.getInt(at + field);
  }

  long getLong(int field) {
    return memory.getLong(at + field);
  }

  double getDouble(int field) {
    return memory.getDouble(at + field);
  }

  int getByte(int field) {
    return memory.get(at + field) & 0xFF;
  }

  byte[] bytes(int field, int n) {
    return Memory.bytes(memory, at + field, n);
  }

  String text(int field, int capacity) {
    return Memory.text(memory, at + field, capacity);
  }
}
