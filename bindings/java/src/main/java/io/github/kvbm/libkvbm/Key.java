// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.util.Arrays;
import java.util.HexFormat;

/** The name of a block's content in its namespace: 16 bytes. Batches of keys are a {@link KeyArray}. */
public final class Key {
  /** Bytes of a key. */
  public static final int BYTES = 16;

  private final byte[] bytes;

  private Key(byte[] bytes) {
    this.bytes = bytes;
  }

  /**
   * Makes a key of its bytes.
   *
   * @param bytes 16 bytes, copied
   * @return the key
   */
  public static Key of(byte[] bytes) {
    if (bytes.length != BYTES) throw new IllegalArgumentException("a key has 16 bytes, not " + bytes.length);
    return new Key(bytes.clone());
  }

  /** {@return a copy of its bytes} */
  public byte[] bytes() {
    return bytes.clone();
  }

  byte[] bytesShared() {
    return bytes;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Key && Arrays.equals(bytes, ((Key) other).bytes);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(bytes);
  }

  /** {@return its bytes in hexadecimal} */
  @Override
  public String toString() {
    return HexFormat.of().formatHex(bytes);
  }
}
