// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import java.nio.ByteBuffer;

/** A tensor of an engine: host memory, a block after the other. */
public final class Tensor {
  private final long address;
  private final long bytes;
  private final long blockStride;
  private final long pageBytes;

  @SuppressWarnings("unused")
  private final Object kept;

  private Tensor(long address, long bytes, long blockStride, long pageBytes, Object kept) {
    this.address = address;
    this.bytes = bytes;
    this.blockStride = blockStride;
    this.pageBytes = pageBytes;
    this.kept = kept;
  }

  /**
   * A tensor in a direct buffer, which the cache keeps. Loads write to it.
   *
   * @param data its whole extent: from the buffer's position to its limit
   * @param blockStride bytes from a block to the next; 0 = dense as the form says
   * @param pageBytes OPAQUE: bytes of a block in this tensor; else 0
   * @return the tensor
   * @throws IllegalArgumentException for a heap buffer or a read-only one
   */
  public static Tensor of(ByteBuffer data, long blockStride, long pageBytes) {
    return new Tensor(Memory.writable(data, "data"), data.remaining(), blockStride, pageBytes, data);
  }

  /**
   * An opaque tensor in a direct buffer: pages one after the other.
   *
   * @param data its whole extent: from the buffer's position to its limit
   * @param pageBytes bytes of a block in this tensor
   * @return the tensor
   */
  public static Tensor opaque(ByteBuffer data, long pageBytes) {
    return of(data, 0, pageBytes);
  }

  /**
   * A tensor in memory of another library, which the caller keeps until the cache is closed; also one that is too large
   * for a buffer, or on a device.
   *
   * @param address where it begins
   * @param bytes its whole extent
   * @param blockStride bytes from a block to the next; 0 = dense as the form says
   * @param pageBytes OPAQUE: bytes of a block in this tensor; else 0
   * @return the tensor
   */
  public static Tensor at(long address, long bytes, long blockStride, long pageBytes) {
    return new Tensor(address, bytes, blockStride, pageBytes, null);
  }

  void write(Struct out, int at) {
    out.put(at + tensor_data, address);
    out.put(at + tensor_bytes, bytes);
    out.put(at + tensor_block_stride, blockStride);
    out.put(at + tensor_page_bytes, pageBytes);
  }
}
