// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * An operation under way. It completes with its {@link Completion}, also where only part was done
 * ({@link Status#PARTIAL}, see {@link #itemStatus}), and exceptionally with a {@link KvbmException} where nothing was.
 * What is chained to it without an executor runs on the thread of its {@link CompletionQueue}, or on that which polls.
 *
 * <p>Until then the memory that it reads or writes is the library's, and is kept by the binding even if nothing else
 * refers to it.
 */
public final class Operation extends CompletableFuture<Completion> {
  private final long id;
  private final CompletionQueue.State queue;

  /** 8 bytes for the library's number of it, then 4 for each item; null where the call has neither. */
  private final ByteBuffer memory;

  private final int items;
  private final Consumer<Completion> layers;

  @SuppressWarnings("unused")
  private Object kept;

  Operation(
      long id, CompletionQueue.State queue, int items, boolean written, Object kept, Consumer<Completion> layers) {
    this.id = id;
    this.queue = queue;
    this.items = items;
    this.memory = written ? Memory.allocate(8 + 4L * items) : null;
    this.kept = kept;
    this.layers = layers;
  }

  long operationAddress() {
    return Memory.address(memory.duplicate().position(0), "operation");
  }

  long statusAddress() {
    return operationAddress() + 8;
  }

  /** {@return the number that its completions have} */
  public long id() {
    return id;
  }

  /** The library's number of it. */
  long libraryId() {
    return memory == null ? 0 : memory.getLong(0);
  }

  /** The library's number of it, as an unsigned decimal. */
  String libraryNumber() {
    return Long.toUnsignedString(memory.getLong(0));
  }

  /**
   * Says what became of each item.
   *
   * @return a status for each key of a store or load; empty for other operations
   * @throws IllegalStateException while it goes on
   */
  public Status[] itemStatus() {
    if (queue.pending(this)) throw new IllegalStateException("the operation goes on");
    Status[] statuses = new Status[memory == null ? 0 : items];
    for (int i = 0; i < statuses.length; ++i) statuses[i] = Status.of(memory.getInt(8 + 4 * i));
    return statuses;
  }

  /**
   * Requests its early end. It completes as cancelled, or with the result it already had, when the library has released
   * its memory.
   *
   * @param mayInterruptIfRunning has no effect
   * @return whether the library was asked; false if it has completed, or cannot be cancelled (all except store and
   *     load)
   */
  @Override
  public boolean cancel(boolean mayInterruptIfRunning) {
    if (memory == null || isDone()) return false;
    long operation = memory.getLong(0);
    return operation != 0 && queue.cancel(operation);
  }

  /** Takes a completion; true if it was the last one. */
  boolean take(Completion completion) {
    if (completion.op() == OperationKind.LAYER) {
      if (layers != null) {
        try {
          layers.accept(completion);
        } catch (RuntimeException e) {
          // A listener's fault must not end the thread that others wait for; the operation says it.
          completeExceptionally(e);
        }
      }
      return false;
    }
    kept = null;
    return true;
  }

  void finish(Completion completion) {
    if (completion.status() == Status.CANCELLED) {
      super.cancel(false);
    } else if (completion.status().number() < 0) {
      completeExceptionally(KvbmException.of(completion.status().number(), ""));
    } else {
      complete(completion);
    }
  }
}
