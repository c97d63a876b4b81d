// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.function.LongConsumer;

/**
 * A pointer of the library's that may be closed while it is used. Invariant: the pointer is released once, when it is
 * closed and no call uses it; a call that comes later is refused. So neither a second thread nor a cleaner can pull
 * memory away under a call.
 */
final class Handle {
  private static final VarHandle STATE;

  static {
    try {
      STATE = MethodHandles.lookup().findVarHandle(Handle.class, "state", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final String what;
  private final long pointer;
  private final LongConsumer release;

  /** Bit 0: closed. Above it: how many calls use the pointer. */
  @SuppressWarnings("unused")
  private volatile int state;

  Handle(String what, long pointer, LongConsumer release) {
    this.what = what;
    this.pointer = pointer;
    this.release = release;
  }

  /** The pointer, which stays valid until {@link #end}. */
  long use() {
    for (;;) {
      int now = (int) STATE.getVolatile(this);
      if ((now & 1) != 0) throw new IllegalStateException("this " + what + " is closed");
      if (STATE.compareAndSet(this, now, now + 2)) return pointer;
    }
  }

  /** Takes one more use. The caller has one already, so the object may have been closed meanwhile. */
  void useAgain() {
    STATE.getAndAdd(this, 2);
  }

  void end() {
    if ((int) STATE.getAndAdd(this, -2) == 3) release.accept(pointer);
  }

  void close() {
    for (;;) {
      int now = (int) STATE.getVolatile(this);
      if ((now & 1) != 0) return;
      if (STATE.compareAndSet(this, now, now | 1)) {
        if (now == 0) release.accept(pointer);
        return;
      }
    }
  }

  boolean closed() {
    return ((int) STATE.getVolatile(this) & 1) != 0;
  }
}
