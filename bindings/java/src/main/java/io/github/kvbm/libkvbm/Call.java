// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Objects;

/**
 * Resources of one call into the library, released at its end: pointers in use, memory for arguments, objects that must
 * stay alive. Each thread reuses one, so a call allocates no direct memory. A call within another one (for example for
 * an error's text) gets its own.
 */
final class Call implements AutoCloseable {
  /** Structs and short arrays of a call; longer arrays get memory of their own. */
  private static final int SCRATCH_BYTES = 16 * 1024;

  private static final ThreadLocal<Call> MINE = ThreadLocal.withInitial(Call::new);

  private final ByteBuffer scratch = Memory.allocate(SCRATCH_BYTES);
  private final long base = Memory.address(scratch, "scratch");
  private int used;
  private Handle[] handles = new Handle[8];
  private int nHandles;
  private Object[] kept = new Object[8];
  private int nKept;
  private boolean busy;

  private Call() {}

  static Call begin() {
    Call call = MINE.get();
    if (call.busy) call = new Call();
    call.busy = true;
    return call;
  }

  @Override
  public void close() {
    for (int i = 0; i < nKept; ++i) {
      Reference.reachabilityFence(kept[i]);
      kept[i] = null;
    }
    nKept = 0;
    used = 0;
    busy = false;
    // Last: a release may block, and may itself make calls.
    while (nHandles > 0) {
      Handle handle = handles[--nHandles];
      handles[nHandles] = null;
      handle.end();
    }
  }

  /** The object's pointer, valid until the call ends. */
  long use(NativeObject object, String name) {
    return use(Objects.requireNonNull(object, name).handle);
  }

  long use(Handle handle) {
    long pointer = handle.use();
    if (nHandles == handles.length) handles = Arrays.copyOf(handles, 2 * nHandles);
    handles[nHandles++] = handle;
    return pointer;
  }

  /** As use, for an object that may be missing. */
  long useOrNull(NativeObject object) {
    return object == null ? 0 : use(object.handle);
  }

  <T> T keep(T object) {
    if (nKept == kept.length) kept = Arrays.copyOf(kept, 2 * nKept);
    kept[nKept++] = object;
    return object;
  }

  /** Zeroed memory. */
  Struct memory(long bytes) {
    Struct made = output(bytes);
    if (made.memory == scratch) {
      for (int i = made.at; i < used; i += 8) scratch.putLong(i, 0);
    }
    return made;
  }

  /** Memory that the library fills. */
  Struct output(long bytes) {
    int rounded = (int) Math.min(bytes + 7 & ~7L, Integer.MAX_VALUE);
    if (rounded <= SCRATCH_BYTES - used) {
      int at = used;
      used += rounded;
      return new Struct(scratch, at, base + at);
    }
    ByteBuffer own = keep(Memory.allocate(bytes));
    return new Struct(own, 0, Memory.address(own, "memory"));
  }

  Struct error() {
    // The message is written only by a failure, and then whole.
    if (SIZEOF_error > SCRATCH_BYTES - used) return memory(SIZEOF_error);
    int at = used;
    used += SIZEOF_error;
    scratch.putLong(at, 0).put(at + error_message, (byte) 0);
    return new Struct(scratch, at, base + at);
  }

  /** UTF-8 with a final zero byte; 0 for null. */
  long text(String text) {
    if (text == null) return 0;
    if (text.indexOf('\0') >= 0) throw new IllegalArgumentException("a text with a zero character");
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    return memory(bytes.length + 1L).put(0, bytes).address;
  }

  /** A copy in direct memory; 0 for an empty array or null. */
  long ints(int[] values) {
    if (values == null || values.length == 0) return 0;
    Struct copy = output(4L * values.length);
    copy.memory.slice(copy.at, 4 * values.length).order(copy.memory.order()).asIntBuffer().put(values);
    return copy.address;
  }

  long longs(long[] values) {
    return values == null || values.length == 0 ? 0 : longs(values, values.length).address;
  }

  /** A copy of the first n. */
  Struct longs(long[] values, int n) {
    Struct copy = output(8L * n);
    copy.memory.slice(copy.at, 8 * n).order(copy.memory.order()).asLongBuffer().put(values, 0, n);
    return copy;
  }

  long part(Part part) {
    if (part == null) return 0;
    Struct out = memory(SIZEOF_part);
    part.write(out, 0);
    return out.address;
  }

  long key(Key key) {
    return key == null ? 0 : memory(SIZEOF_key).put(0, key.bytesShared()).address;
  }

  /**
   * Throws what a failed status stands for, with the library's words about it; null where the call has no slot for
   * them.
   */
  static int check(int status, Struct error) {
    if (error == null) return check(status);
    if (status < 0) throw KvbmException.of(status, error.text(error_message, SIZEOF_error - 8));
    return status;
  }

  /** As above, of a call without particulars of its own, which this thread has just made: the library keeps them. */
  static int check(int status) {
    if (status >= 0) return status;
    try (Call call = begin()) {
      Struct error = call.memory(SIZEOF_error);
      kvbm.kvbm_error_last(error.address);
      throw KvbmException.of(status, error.getInt(0) == status ? error.text(error_message, SIZEOF_error - 8) : "");
    }
  }

  /**
   * Nanoseconds of a time of the caller's; null is for ever.
   *
   * @throws IllegalArgumentException for one that is negative
   */
  static long nanoseconds(Duration time, String name) {
    if (time == null) return Kvbm.FOREVER;
    if (time.isNegative()) throw new IllegalArgumentException(name + " is negative: " + time);
    try {
      return time.toNanos();
    } catch (ArithmeticException tooLong) {
      return Kvbm.FOREVER; // centuries
    }
  }

  /**
   * A size or count of the caller's.
   *
   * @throws IllegalArgumentException for one that is negative
   */
  static long size(long number, String name) {
    if (number < 0) throw new IllegalArgumentException(name + " is negative: " + number);
    return number;
  }

  /** As size, of a smaller number. */
  static int size(int number, String name) {
    size((long) number, name);
    return number;
  }

  /** A text of two phases: asked for its length first, and again if it grew meanwhile. */
  interface TwoPhase {
    /** Writes at most {@code capacity} bytes. */
    int write(long out, long capacity, long outNeeded);
  }

  static String twoPhase(TwoPhase source) {
    long capacity = 0;
    for (;;) {
      try (Call call = begin()) {
        Struct needed = call.memory(8);
        Struct out = capacity == 0 ? null : call.memory(capacity);
        check(source.write(out == null ? 0 : out.address, capacity, needed.address));
        long n = needed.getLong(0);
        if (out != null && n < capacity) return new String(out.bytes(0, (int) n), StandardCharsets.UTF_8);
        capacity = n + 1 + n / 8;
      }
    }
  }
}
