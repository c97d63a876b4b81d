// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.util.Objects;
import java.util.function.LongConsumer;

/**
 * Holds on blocks of a manager's pool; closing it ends them. A block is evicted only when nothing holds it. The manager
 * stays until its block arrays are closed.
 *
 * <p>New blocks come from {@link Manager#allocate}: write them through {@link #views}, then {@link #complete} and
 * {@link #register} them. Those of a {@link Match} are registered already.
 */
public final class BlockArray extends NativeObject {
  /** Where the blocks are in their lives. */
  public enum State {
    /** Being filled; the only state in which they may be written. */
    PARTIAL,
    /** Their bytes are final. */
    COMPLETE,
    /** Findable by key. */
    REGISTERED,
    /** Weak holds, which do not keep a block. */
    WEAK
  }

  private final Handle manager;
  private final long[] holds;
  private volatile State state;

  /** The caller has a use of the manager; the array takes one more. */
  private BlockArray(Handle manager, long pointer, long[] holds, State state) {
    super("block array", pointer, new Release(manager, holds));
    this.manager = manager;
    this.holds = holds;
    this.state = state;
    manager.useAgain();
  }

  /** The caller has a use of the manager with this pointer. */
  static BlockArray read(Handle manager, long pointer, Struct rows, int n, State state) {
    long[] holds = new long[n];
    for (int i = 0; i < n; ++i) holds[i] = rows.getLong(8 * i);
    return new BlockArray(manager, pointer, holds, state);
  }

  /** Ends the holds; not a lambda, so that it cannot refer to the array. */
  private static final class Release implements LongConsumer {
    private final Handle manager;
    private final long[] holds;

    Release(Handle manager, long[] holds) {
      this.manager = manager;
      this.holds = holds;
    }

    @Override
    public void accept(long pointer) {
      try (Call call = Call.begin()) {
        Struct live = call.output(8L * holds.length);
        int n = 0;
        for (long hold : holds) {
          if (hold != 0) live.put(8 * n++, hold);
        }
        // Holds that a failed call has ended already are stale; every other one is ended all the same.
        if (n > 0) kvbm.kvbm_block_release(pointer, live.address, n);
      } finally {
        manager.end();
      }
    }
  }

  /** {@return the number of holds} */
  public int size() {
    return holds.length;
  }

  /** {@return where the blocks are in their lives} */
  public State state() {
    return state;
  }

  /**
   * The library's number of a hold.
   *
   * @param index from 0
   * @return the number; 0 where there is no block
   */
  public long hold(int index) {
    synchronized (holds) {
      return holds[index];
    }
  }

  /** The bytes are final: all of the manager's block_bytes. */
  public void complete() {
    complete(null);
  }

  /**
   * The bytes are final.
   *
   * @param bytes payload length of each block; null = the manager's block_bytes
   */
  public void complete(long[] bytes) {
    if (bytes != null) sameLength(bytes.length, "lengths");
    try (Call call = Call.begin()) {
      long pointer = call.use(handle);
      synchronized (holds) {
        Call.check(kvbm.kvbm_manager_complete(
            pointer, call.longs(holds, holds.length).address, holds.length, call.longs(bytes)));
        state = State.COMPLETE;
      }
    }
  }

  /**
   * Makes the blocks findable by key.
   *
   * @param ns namespace of the keys
   * @param keys a key for each block, a prefix in order
   */
  public void register(Namespace ns, KeyArray keys) {
    register(ns, keys, null);
  }

  /**
   * Makes the blocks findable by key.
   *
   * @param ns namespace of the keys
   * @param keys a key for each block
   * @param options null = defaults
   */
  public void register(Namespace ns, KeyArray keys, RegisterOptions options) {
    sameLength(Objects.requireNonNull(keys, "keys").size(), "keys");
    try (Call call = Call.begin()) {
      long pointer = call.use(handle);
      ItemStatus statuses = new ItemStatus(call, options == null ? null : options.statuses(), holds.length);
      long how = options == null ? 0 : options.write(call, statuses, holds.length).address;
      synchronized (holds) {
        Struct blocks = call.longs(holds, holds.length);
        try {
          Call.check(kvbm.kvbm_manager_register(
              pointer, call.use(ns, "ns"), blocks.address, keys.address(call), holds.length, how));
          state = State.REGISTERED;
        } finally {
          // Whatever became of the call: these are the holds now.
          for (int i = 0; i < holds.length; ++i) holds[i] = blocks.getLong(8 * i);
          statuses.read();
        }
      }
    }
  }

  /**
   * Gives access to the blocks' memory, without a copy: writable while they are partial, else read-only.
   *
   * @return views, which hold the blocks too
   */
  public BlockViews views() {
    try (Call call = Call.begin()) {
      long pointer = call.use(handle);
      int[] place = null;
      synchronized (holds) {
        Struct live = call.output(8L * holds.length);
        int n = 0;
        for (int i = 0; i < holds.length; ++i) {
          if (holds[i] == 0 && place == null) place = identity(holds.length);
          if (place != null) place[i] = holds[i] == 0 ? -1 : n;
          if (holds[i] != 0) live.put(8 * n++, holds[i]);
        }
        Struct rows = call.output((long) SIZEOF_view * n);
        if (n > 0) Call.check(kvbm.kvbm_block_view(pointer, live.address, n, rows.address));
        return new BlockViews(handle, rows, n, place, holds.length, state == State.PARTIAL);
      }
    }
  }

  private static int[] identity(int n) {
    int[] numbers = new int[n];
    for (int i = 0; i < n; ++i) numbers[i] = i;
    return numbers;
  }

  /** {@return one more hold on each registered block} */
  public BlockArray duplicate() {
    return again(kvbm::kvbm_block_clone, State.REGISTERED);
  }

  /** {@return weak holds on the blocks, which do not keep them} */
  public BlockArray downgrade() {
    return again(kvbm::kvbm_block_downgrade, State.WEAK);
  }

  /** {@return a hold on each block of these weak holds; 0 where the block has gone} */
  public BlockArray upgrade() {
    return again(kvbm::kvbm_block_upgrade, State.REGISTERED);
  }

  private interface Again {
    int call(long manager, long blocks, long n, long out);
  }

  private BlockArray again(Again how, State then) {
    try (Call call = Call.begin()) {
      long pointer = call.use(handle);
      Struct out = call.memory(8L * holds.length);
      synchronized (holds) {
        Call.check(how.call(pointer, call.longs(holds, holds.length).address, holds.length, out.address));
      }
      return read(manager, pointer, out, holds.length, then);
    }
  }

  /**
   * Moves some of the holds into an array of their own.
   *
   * @param from first index
   * @param to index after the last
   * @return holds [from, to), which are 0 here from now on
   */
  public BlockArray take(int from, int to) {
    Objects.checkFromToIndex(from, to, holds.length);
    try (Call call = Call.begin()) {
      long pointer = call.use(handle);
      long[] taken = new long[to - from];
      synchronized (holds) {
        for (int i = from; i < to; ++i) {
          taken[i - from] = holds[i];
          holds[i] = 0;
        }
        return new BlockArray(manager, pointer, taken, state);
      }
    }
  }

  private void sameLength(int n, String what) {
    if (n != holds.length) throw new IllegalArgumentException(n + " " + what + " for " + holds.length + " blocks");
  }

  @Override
  String facts() {
    return size() + " " + state;
  }
}
