// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

/** Direct memory and its addresses. */
final class Memory {
  private Memory() {}

  static ByteBuffer allocate(long bytes) {
    if (bytes < 0 || bytes > Integer.MAX_VALUE - 8) {
      throw new IllegalArgumentException(bytes + " bytes do not fit into one array");
    }
    return ByteBuffer.allocateDirect((int) bytes).order(ByteOrder.nativeOrder());
  }

  /** Where the buffer's position is. The caller keeps the buffer reachable for as long as the address is used. */
  static long address(ByteBuffer buffer, String name) {
    Objects.requireNonNull(buffer, name);
    if (!buffer.isDirect()) {
      throw new IllegalArgumentException(name + " must be a direct buffer: memory of the heap moves");
    }
    return kvbm.kvbm_java_address_of(buffer) + buffer.position();
  }

  /** As address, of memory that the library is to write to. */
  static long writable(ByteBuffer buffer, String name) {
    long address = address(buffer, name);
    if (buffer.isReadOnly()) throw new IllegalArgumentException(name + " is read-only");
    return address;
  }

  /** The text of at most {@code capacity} bytes that ends with a zero byte. */
  static String text(ByteBuffer memory, int at, int capacity) {
    int n = 0;
    while (n < capacity && memory.get(at + n) != 0) ++n;
    byte[] bytes = new byte[n];
    memory.get(at, bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }

  static byte[] bytes(ByteBuffer memory, int at, int n) {
    byte[] bytes = new byte[n];
    memory.get(at, bytes);
    return bytes;
  }
}
