// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.lang.ref.Cleaner;
import java.util.function.LongConsumer;

/** Base of objects with a pointer of the library: closed explicitly, or by a cleaner once they are unreachable. */
abstract class NativeObject implements AutoCloseable {
  static final Cleaner CLEANER = Cleaner.create();

  final Handle handle;
  private final Cleaner.Cleanable net;

  /** {@code release} must not refer to this object, or the cleaner never runs. */
  NativeObject(String what, long pointer, LongConsumer release) {
    handle = new Handle(what, pointer, release);
    net = CLEANER.register(this, handle::close);
  }

  /** As above, of what is closed in a way of its own. */
  NativeObject(Handle handle, Runnable close) {
    this.handle = handle;
    net = CLEANER.register(this, close);
  }

  /** Ends this object; a second time does nothing. */
  @Override
  public void close() {
    net.clean();
  }

  /** {@return whether it was closed} */
  public boolean isClosed() {
    return handle.closed();
  }

  /** Distinguishes it from others of its kind, while it is open. */
  String facts() {
    return "";
  }

  /** {@return what it is, what tells it from others, and whether it is closed} */
  @Override
  public final String toString() {
    String facts;
    try {
      facts = isClosed() ? "closed" : facts();
    } catch (IllegalStateException closedMeanwhile) {
      facts = "closed";
    }
    return getClass().getSimpleName() + "(" + facts + ")";
  }
}
