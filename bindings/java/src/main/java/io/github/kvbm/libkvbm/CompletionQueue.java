// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * Where completions of asynchronous calls arrive. One made by {@link #create} has a daemon thread that completes the
 * futures ({@link Operation}); one made by {@link #polled} has none: its owner calls {@link #poll} or {@link #await},
 * perhaps when {@link #fd} is readable, and the futures complete within these calls.
 *
 * <p>Closing it refuses new operations; those in flight still finish, and complete their futures.
 */
public final class CompletionQueue extends NativeObject {
  private static final int BATCH = 64;

  /** How long the thread waits in the library before it looks whether it is still needed. */
  private static final long WAIT_NS = 200_000_000L;

  private final State state;

  private CompletionQueue(State state) {
    super(state.handle, state::close);
    this.state = state;
  }

  /**
   * Creates a queue with a thread that completes futures.
   *
   * @param context the context
   * @param depth operations in flight at most, 1 to 65,536
   * @return the queue
   */
  public static CompletionQueue create(Context context, int depth) {
    State state = new State(open(context, depth), false);
    state.startThread();
    return new CompletionQueue(state);
  }

  /**
   * Creates a queue that its owner polls.
   *
   * @param context the context
   * @param depth operations in flight at most, 1 to 65,536
   * @return the queue
   */
  public static CompletionQueue polled(Context context, int depth) {
    return new CompletionQueue(new State(open(context, depth), true));
  }

  private static long open(Context context, int depth) {
    Call.size(depth, "depth");
    try (Call call = Call.begin()) {
      Struct out = call.memory(8);
      Struct error = call.error();
      Call.check(kvbm.kvbm_queue_create(call.use(context, "context"), depth, out.address, error.address), error);
      return out.getLong(0);
    }
  }

  /** {@return a file descriptor that polls readable while completions or events wait; not to be read or closed} */
  public int fd() {
    try (Call call = Call.begin()) {
      return kvbm.kvbm_queue_fd(use(call));
    }
  }

  /**
   * Takes completions that are there and completes their futures.
   *
   * @param max maximum number
   * @return the completions
   * @throws IllegalStateException if the queue has a thread
   */
  public List<Completion> poll(int max) {
    return await(max, Duration.ZERO);
  }

  /**
   * Takes completions like poll, and waits for the first one.
   *
   * @param max maximum number
   * @param timeout limit of the wait, after which the list is empty; null = for ever
   * @return the completions
   * @throws IllegalStateException if the queue has a thread
   */
  public List<Completion> await(int max, Duration timeout) {
    if (!state.polled) throw new IllegalStateException("this queue's own thread takes its completions");
    if (max < 1) throw new IllegalArgumentException("max is " + max);
    return state.take(max, Call.nanoseconds(timeout, "timeout"));
  }

  /**
   * Takes block events ({@link Manager#subscribe}).
   *
   * @param max maximum number
   * @return what was there
   */
  public List<BlockEvent> pollEvents(int max) {
    if (max < 1) throw new IllegalArgumentException("max is " + max);
    try (Call call = Call.begin()) {
      Struct rows = call.memory((long) SIZEOF_event * max);
      int n = (int) kvbm.kvbm_queue_poll_events(use(call), rows.address, max);
      List<BlockEvent> events = new ArrayList<>(n);
      for (int i = 0; i < n; ++i) events.add(BlockEvent.read(rows, i * SIZEOF_event));
      return events;
    }
  }

  /** {@return how many operations are under way} */
  public int pending() {
    return state.operations.size();
  }

  @Override
  public boolean isClosed() {
    return state.closing;
  }

  /** The pointer goes on for a while after close, for what is under way. */
  private long use(Call call) {
    if (state.closing) throw new IllegalStateException("this queue is closed");
    return call.use(handle);
  }

  /** A call into the library that submits; returns its status. */
  interface Submit {
    int call(long queue, Operation operation);
  }

  /**
   * Submits: from before the call until its completion was taken the operation is in the table, with all that the
   * library may write to. {@code error} may be null.
   */
  Operation submit(Call call, int items, boolean written, Object kept, Consumer<Completion> layers, Struct error,
      Submit how) {
    Operation operation = state.add(items, written, kept, layers);
    boolean accepted = false;
    try {
      Call.check(how.call(call.use(handle), operation), error);
      accepted = true;
      return operation;
    } finally {
      if (!accepted) state.remove(operation.id());
    }
  }

  /** State of a queue for the thread and the cleaner: not the queue itself, which may become unreachable. */
  static final class State implements Runnable {
    private final Handle handle;
    private final boolean polled;
    private final Map<Long, Operation> operations = new ConcurrentHashMap<>();
    private static final AtomicLong LAST = new AtomicLong();
    private volatile boolean closing;
    private boolean threaded;

    State(long pointer, boolean polled) {
      this.handle = new Handle("queue", pointer, kvbm::kvbm_queue_release);
      this.polled = polled;
    }

    synchronized void startThread() {
      if (threaded) return;
      threaded = true;
      Thread thread = new Thread(this, "kvbm-completions");
      thread.setDaemon(true);
      thread.start();
    }

    private synchronized Operation add(int items, boolean written, Object kept, Consumer<Completion> layers) {
      if (closing) throw new IllegalStateException("this queue is closed");
      Operation operation = new Operation(LAST.incrementAndGet(), this, items, written, kept, layers);
      operations.put(operation.id(), operation);
      notifyAll();
      return operation;
    }

    private synchronized void remove(long id) {
      operations.remove(id);
      notifyAll();
    }

    boolean pending(Operation operation) {
      return operations.containsKey(operation.id());
    }

    boolean cancel(long operation) {
      try {
        long pointer = handle.use();
        try {
          return kvbm.kvbm_queue_cancel(pointer, operation) >= 0;
        } finally {
          handle.end();
        }
      } catch (IllegalStateException e) {
        return false; // Closed: everything has completed.
      }
    }

    /** Operations in flight still write to memory that this table keeps: it goes when they have completed. */
    private synchronized void close() {
      if (closing) return;
      closing = true;
      notifyAll();
      if (threaded) return;
      if (operations.isEmpty()) {
        handle.close();
      } else {
        startThread();
      }
    }

    private List<Completion> take(int max, long timeoutNs) {
      List<Completion> taken = new ArrayList<>();
      try (Call call = Call.begin()) {
        Struct rows = call.memory((long) SIZEOF_completion * max);
        long queue = call.use(handle);
        long n = timeoutNs == 0 ? kvbm.kvbm_queue_poll(queue, rows.address, max)
            : kvbm.kvbm_queue_wait(queue, rows.address, max, timeoutNs);
        for (int i = 0; i < n; ++i) taken.add(Completion.read(rows, i * SIZEOF_completion));
      }
      for (Completion completion : taken) {
        Operation operation = operations.get(completion.id());
        if (operation != null && operation.take(completion)) {
          remove(completion.id());
          operation.finish(completion);
        }
      }
      return taken;
    }

    /** False once the queue is closed and nothing is under way. */
    private synchronized boolean waitForWork() throws InterruptedException {
      while (operations.isEmpty() && !closing) wait();
      return !operations.isEmpty();
    }

    @Override
    public void run() {
      try {
        while (waitForWork()) take(BATCH, WAIT_NS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
      handle.close();
    }
  }

  @Override
  String facts() {
    return "pending " + pending();
  }
}
