// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The memory of held blocks as direct buffers, without a copy.
 *
 * <p>The buffers keep the blocks: while one of them or this object is reachable, the holds of the {@link BlockArray}
 * stay, also after it was closed. Close this object when its buffers are not used any more; the holds then end at once.
 * Java cannot revoke a buffer. So a buffer that is used after that reads or writes memory with another use. If the uses
 * of the buffers are hard to track, let them become unreachable instead. In the same way a buffer that was made while
 * the block was partial can still be written when the block is complete, and must not be.
 */
public final class BlockViews implements AutoCloseable {
  private final Cleaner.Cleanable[] nets;
  private final ByteBuffer[] roots;
  private final long low;
  private final long[] address;
  private final long[] bytes;
  private final long[] slot;

  /** Of each hold, where it is in the rows; null = in the same order. */
  private final int[] place;

  private final int size;
  private volatile boolean closed;

  /** The caller uses the handle of the block array; each root takes one more use, until it is unreachable. */
  BlockViews(Handle blocks, Struct rows, int n, int[] place, int size, boolean writable) {
    this.place = place;
    this.size = size;
    address = new long[n];
    bytes = new long[n];
    slot = new long[n];
    long first = Long.MAX_VALUE;
    long end = 0;
    for (int i = 0; i < n; ++i) {
      int at = i * SIZEOF_view;
      address[i] = rows.getLong(at + view_data);
      bytes[i] = rows.getLong(at + view_bytes);
      slot[i] = rows.getLong(at + view_slot);
      first = Math.min(first, address[i]);
      end = Math.max(end, address[i] + bytes[i]);
    }
    low = first;
    // One buffer that spans them all, of which each view is a slice: a slice costs no call into the library.
    boolean one = n > 0 && end - first <= Integer.MAX_VALUE;
    roots = new ByteBuffer[one ? 1 : n];
    nets = new Cleaner.Cleanable[roots.length];
    for (int i = 0; i < roots.length; ++i) {
      root(blocks, i, one ? first : address[i], one ? end - first : bytes[i], writable);
    }
  }

  private void root(Handle blocks, int i, long at, long length, boolean writable) {
    if (length > Integer.MAX_VALUE) throw new IllegalStateException(length + " bytes do not fit into one buffer");
    ByteBuffer root = kvbm.kvbm_java_buffer_at(at, length);
    blocks.useAgain();
    nets[i] = NativeObject.CLEANER.register(root, blocks::end);
    roots[i] = writable ? root : root.asReadOnlyBuffer();
  }

  /** {@return the number of blocks} */
  public int size() {
    return size;
  }

  /**
   * The memory of one block.
   *
   * @param index from 0
   * @return a buffer over all of it, in the machine's byte order; null where there is no block
   */
  public ByteBuffer get(int index) {
    int i = row(index);
    if (i < 0) return null;
    ByteBuffer root = roots.length == 1 ? roots[0] : roots[i];
    int from = roots.length == 1 ? (int) (address[i] - low) : 0;
    return root.slice(from, (int) bytes[i]).order(ByteOrder.nativeOrder());
  }

  /**
   * The position of one block in the host tier.
   *
   * @param index from 0
   * @return stable while held; -1 where there is no block
   */
  public long slot(int index) {
    int i = row(index);
    return i < 0 ? -1 : slot[i];
  }

  private int row(int index) {
    if (closed) throw new IllegalStateException("these views are closed");
    if (index < 0 || index >= size) throw new IndexOutOfBoundsException(index + " of " + size + " blocks");
    return place == null ? index : place[index];
  }

  /** Says that the buffers are used no more; a second time does nothing. */
  @Override
  public void close() {
    closed = true;
    for (Cleaner.Cleanable net : nets) net.clean();
  }
}
