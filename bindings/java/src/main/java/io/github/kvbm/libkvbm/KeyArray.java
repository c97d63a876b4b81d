// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.nio.ByteBuffer;
import java.util.List;

/**
 * Keys of a batch, in direct memory as the library reads them, so that a call copies nothing. Immutable. Its memory
 * goes when it is unreachable; there is nothing to close. Made by {@link Namespace}.
 */
public final class KeyArray {
  private final ByteBuffer memory;
  private final long address;
  private final int size;

  /** Takes the memory over; {@code size} keys begin at its position 0. */
  KeyArray(ByteBuffer memory, int size) {
    this.memory = memory;
    this.address = Memory.address(memory, "keys");
    this.size = size;
  }

  /**
   * Copies keys.
   *
   * @param keys the keys in order
   * @return an array of them
   */
  public static KeyArray of(List<Key> keys) {
    ByteBuffer memory = Memory.allocate((long) Key.BYTES * keys.size());
    for (int i = 0; i < keys.size(); ++i) memory.put(i * Key.BYTES, keys.get(i).bytesShared());
    return new KeyArray(memory, keys.size());
  }

  /**
   * Uses keys where they are, without a copy: they must not change as long as the array is used.
   *
   * @param buffer a direct buffer; 16 bytes a key from its position to its limit
   * @return an array over that memory
   */
  public static KeyArray wrap(ByteBuffer buffer) {
    if (!buffer.isDirect()) throw new IllegalArgumentException("keys must be in a direct buffer");
    if (buffer.remaining() % Key.BYTES != 0) {
      throw new IllegalArgumentException(buffer.remaining() + " bytes are no whole number of 16-byte keys");
    }
    return new KeyArray(buffer.slice(), buffer.remaining() / Key.BYTES);
  }

  /** {@return the number of keys} */
  public int size() {
    return size;
  }

  /**
   * Copies one key out.
   *
   * @param index from 0
   * @return the key
   */
  public Key get(int index) {
    check(index, index + 1);
    return Key.of(Memory.bytes(memory, index * Key.BYTES, Key.BYTES));
  }

  /**
   * Names a part of this array without copying it.
   *
   * @param from first index
   * @param to index after the last
   * @return keys [from, to)
   */
  public KeyArray slice(int from, int to) {
    check(from, to);
    return new KeyArray(memory.slice(from * Key.BYTES, (to - from) * Key.BYTES), to - from);
  }

  /** {@return all keys, copied} */
  public List<Key> toList() {
    Key[] keys = new Key[size];
    for (int i = 0; i < size; ++i) keys[i] = get(i);
    return List.of(keys);
  }

  private void check(int from, int to) {
    if (from < 0 || to > size || from > to) {
      throw new IndexOutOfBoundsException("[" + from + ", " + to + ") of " + size + " keys");
    }
  }

  /** Where the keys are, for as long as {@code call} goes on. */
  long address(Call call) {
    call.keep(this);
    return address;
  }
}
