// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.nio.ByteBuffer;
import java.util.UUID;

/**
 * Names a request on every rank of both sides; never used again.
 *
 * @param id its 16 bytes
 */
public record RequestId(UUID id) {
  /** {@return a new one} */
  public static RequestId random() {
    return new RequestId(UUID.randomUUID());
  }

  /**
   * Makes one of its bytes.
   *
   * @param bytes 16 bytes
   * @return the id
   */
  public static RequestId of(byte[] bytes) {
    if (bytes.length != 16) throw new IllegalArgumentException("a request id has 16 bytes, not " + bytes.length);
    ByteBuffer in = ByteBuffer.wrap(bytes);
    return new RequestId(new UUID(in.getLong(), in.getLong()));
  }

  long write(Call call) {
    ByteBuffer out = ByteBuffer.allocate(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits());
    return call.memory(16).put(0, out.array()).address;
  }
}
