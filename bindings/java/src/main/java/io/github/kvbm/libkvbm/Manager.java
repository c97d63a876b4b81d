// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/**
 * One owner of one set of tiers. Its tiers are closed when the last of it and its namespaces, caches, matches and block
 * arrays is.
 */
public final class Manager extends NativeObject {
  private Manager(long pointer) {
    super("manager", pointer, kvbm::kvbm_manager_release);
  }

  /**
   * Creates a manager from the configuration.
   *
   * @param context the context
   * @return the manager
   */
  public static Manager create(Context context) {
    return create(context, null);
  }

  /**
   * Creates a manager: maps the host tier, opens and recovers the tiers below.
   *
   * @param context the context
   * @param options null = everything from the configuration
   * @return the manager
   */
  public static Manager create(Context context, ManagerOptions options) {
    try (Call call = Call.begin()) {
      Struct out = call.memory(8);
      Struct error = call.error();
      long how = options == null ? 0 : options.write(call).address;
      Call.check(kvbm.kvbm_manager_create(call.use(context, "context"), how, out.address, error.address), error);
      return new Manager(out.getLong(0));
    }
  }

  /** Forgets every block of every tier that nothing holds. */
  public void reset() {
    try (Call call = Call.begin()) {
      Struct error = call.error();
      Call.check(kvbm.kvbm_manager_reset(call.use(handle), error.address), error);
    }
  }

  /**
   * Waits until no offload is queued or in flight.
   *
   * @param timeout time limit; null = for ever
   * @return {@link Status#OK}, or {@link Status#PARTIAL} if a tier, or a shared tier set, did not accept some blocks
   * @throws PeerException KVBM_ERR_DEADLINE after that time
   */
  public Status flush(Duration timeout) {
    try (Call call = Call.begin()) {
      return Status.of(Call.check(kvbm.kvbm_manager_flush(call.use(handle), Call.nanoseconds(timeout, "timeout"))));
    }
  }

  /**
   * Waits until every address of node.peers is a connected node that has reported its contents. The first lookup that
   * asks nodes then asks all of them. Returns at once for a manager without node.peers.
   *
   * @param timeout time limit; null = for ever
   * @throws PeerException KVBM_ERR_DEADLINE after that time; names the addresses that are not connected, and the
   * reasons
   * @throws UnavailableException KVBM_ERR_PERMISSION if all missing addresses refuse this node
   */
  public void waitForPeers(Duration timeout) {
    try (Call call = Call.begin()) {
      Struct error = call.error();
      long ns = Call.nanoseconds(timeout, "timeout");
      Call.check(kvbm.kvbm_manager_wait_for_peers(call.use(handle), ns, error.address), error);
    }
  }

  /**
   * Waits as {@link #flush} does, and until what the disks then have survives the loss of power.
   *
   * @param timeout time limit; null = for ever
   * @return {@link Status#OK}, or {@link Status#PARTIAL} where a tier did not take some blocks, or could not make some
   *     durable: those have left it, and the next flush sends them again
   * @throws KvbmException KVBM_ERR_UNSUPPORTED where nothing was promised: no tier below host memory, or a plug-in tier
   * @throws PeerException KVBM_ERR_DEADLINE after that time
   */
  public Status flushDurable(Duration timeout) {
    try (Call call = Call.begin()) {
      long ns = Call.nanoseconds(timeout, "timeout");
      return Status.of(Call.check(kvbm.kvbm_manager_flush_durable(call.use(handle), ns)));
    }
  }

  /**
   * Opens a namespace.
   *
   * @param options the scope of its keys
   * @return the namespace
   */
  public Namespace namespace(NamespaceOptions options) {
    try (Call call = Call.begin()) {
      Struct out = call.memory(8);
      Struct error = call.error();
      Call.check(kvbm.kvbm_namespace_open(
          call.use(handle), options.write(call).address, out.address, error.address), error);
      return new Namespace(out.getLong(0), options.units());
    }
  }

  /**
   * Describes an engine's cache.
   *
   * @param ns namespace of the blocks
   * @param nBlocks engine blocks in the tensors
   * @param parts the parts that it holds
   * @return the cache
   */
  public Cache attach(Namespace ns, int nBlocks, List<CachePart> parts) {
    return attach(ns, nBlocks, parts, MemoryKind.AUTO, 0);
  }

  /**
   * Describes an engine's cache in memory of a device, or explicitly in host memory.
   *
   * @param ns namespace of the blocks
   * @param nBlocks engine blocks in the tensors
   * @param parts the parts that it holds; tensors on a device are made by {@link Tensor#at}
   * @param memory the kind of memory
   * @param device CUDA: its ordinal; else 0
   * @return the cache
   */
  public Cache attach(Namespace ns, int nBlocks, List<CachePart> parts, MemoryKind memory, int device) {
    return Cache.attach(this, ns, nBlocks, parts, memory, device);
  }

  /**
   * Allocates new blocks, all or none, and evicts blocks without a hold if necessary. Their bytes are undefined.
   *
   * @param ns namespace of the blocks
   * @param n number of blocks
   * @return partial blocks
   * @throws NoRoomException if all blocks are held, or the quota is used up
   */
  public BlockArray allocate(Namespace ns, int n) {
    return allocate(ns, n, null);
  }

  /**
   * Allocates new blocks, and reports the evicted blocks.
   *
   * @param ns namespace of the blocks
   * @param n number of blocks
   * @param evicted receives the keys of blocks that were evicted; null = not wanted
   * @return partial blocks
   */
  public BlockArray allocate(Namespace ns, int n, List<Key> evicted) {
    Call.size(n, "n");
    try (Call call = Call.begin()) {
      long pointer = call.use(handle);
      Struct out = call.output(8L * n);
      Struct keys = evicted == null ? null : call.output((long) SIZEOF_key * n);
      Struct count = call.memory(8);
      Call.check(kvbm.kvbm_manager_allocate(pointer, call.use(ns, "ns"), n, out.address,
          keys == null ? 0 : keys.address, keys == null ? 0 : n, count.address));
      BlockArray blocks = BlockArray.read(handle, pointer, out, n, BlockArray.State.PARTIAL);
      for (int i = 0; keys != null && i < Math.min(n, count.getLong(0)); ++i) {
        evicted.add(Key.of(keys.bytes(i * SIZEOF_key, Key.BYTES)));
      }
      return blocks;
    }
  }

  /**
   * Looks for the longest prefix of keys, in every tier.
   *
   * @param ns namespace of the keys
   * @param keys the prompt's keys
   * @return what was found, held until it is closed
   */
  public Match lookup(Namespace ns, KeyArray keys) {
    return lookup(ns, keys, null);
  }

  /**
   * Looks for keys.
   *
   * @param ns namespace of the keys
   * @param keys the keys
   * @param options null = defaults
   * @return what was found, held until it is closed
   */
  public Match lookup(Namespace ns, KeyArray keys, LookupOptions options) {
    Objects.requireNonNull(keys, "keys");
    try (Call call = Call.begin()) {
      Struct out = call.memory(16);
      long how = options == null ? 0 : options.write(call).address;
      Call.check(kvbm.kvbm_manager_lookup(call.use(handle), call.use(ns, "ns"), keys.address(call), keys.size(), how,
          out.address, out.address + 8));
      return new Match(out.getLong(0), this, (int) out.getLong(8));
    }
  }

  /**
   * Brings blocks up into the host tier, and waits for it. Keys that are in no tier are ignored.
   *
   * @param ns namespace of the keys
   * @param part null = component 0, whole model
   * @param keys the keys
   * @return {@link Status#OK}, also if some keys are in no tier
   */
  public Status prefetch(Namespace ns, Part part, KeyArray keys) {
    Objects.requireNonNull(keys, "keys");
    try (Call call = Call.begin()) {
      return Status.of(Call.check(kvbm.kvbm_manager_prefetch(
          call.use(handle), call.use(ns, "ns"), call.part(part), keys.address(call), keys.size(), 0, 0)));
    }
  }

  /**
   * Brings blocks up into the host tier.
   *
   * @param ns namespace of the keys
   * @param part null = component 0, whole model
   * @param keys the keys
   * @param queue where it completes
   * @return the operation
   */
  public Operation prefetchAsync(Namespace ns, Part part, KeyArray keys, CompletionQueue queue) {
    Objects.requireNonNull(keys, "keys");
    Objects.requireNonNull(queue, "queue");
    try (Call call = Call.begin()) {
      long pointer = call.use(handle);
      return queue.submit(call, keys.size(), false, this, null, null, (q, operation) -> kvbm.kvbm_manager_prefetch(
          pointer, call.use(ns, "ns"), call.part(part), keys.address(call), keys.size(), q, operation.id()));
    }
  }

  /**
   * Copies host blocks to a lower tier now, and waits for it.
   *
   * @param ns namespace of the keys
   * @param part null = component 0, whole model
   * @param keys the keys
   * @param tier 1 = the first below
   * @return {@link Status#OK} or {@link Status#PARTIAL}
   */
  public Status offload(Namespace ns, Part part, KeyArray keys, int tier) {
    Objects.requireNonNull(keys, "keys");
    Call.size(tier, "tier");
    try (Call call = Call.begin()) {
      return Status.of(Call.check(kvbm.kvbm_manager_offload(
          call.use(handle), call.use(ns, "ns"), call.part(part), keys.address(call), keys.size(), tier, 0, 0)));
    }
  }

  /**
   * Copies host blocks to a lower tier now.
   *
   * @param ns namespace of the keys
   * @param part null = component 0, whole model
   * @param keys the keys
   * @param tier 1 = the first below
   * @param queue where it completes
   * @return the operation
   */
  public Operation offloadAsync(Namespace ns, Part part, KeyArray keys, int tier, CompletionQueue queue) {
    Objects.requireNonNull(keys, "keys");
    Call.size(tier, "tier");
    Objects.requireNonNull(queue, "queue");
    try (Call call = Call.begin()) {
      long pointer = call.use(handle);
      return queue.submit(call, keys.size(), false, this, null, null, (q, operation) -> kvbm.kvbm_manager_offload(
          pointer, call.use(ns, "ns"), call.part(part), keys.address(call), keys.size(), tier, q, operation.id()));
    }
  }

  /**
   * Removes blocks from every tier.
   *
   * @param ns namespace of the keys
   * @param part null = component 0, whole model
   * @param keys the keys
   * @return the number of blocks that were in the host tier
   */
  public long drop(Namespace ns, Part part, KeyArray keys) {
    Objects.requireNonNull(keys, "keys");
    try (Call call = Call.begin()) {
      Struct out = call.memory(8);
      Call.check(kvbm.kvbm_manager_drop(
          call.use(handle), call.use(ns, "ns"), call.part(part), keys.address(call), keys.size(), out.address));
      return out.getLong(0);
    }
  }

  /**
   * Passes a hint about blocks to the policies. Absent keys are ignored.
   *
   * @param ns namespace of the keys
   * @param part null = component 0, whole model
   * @param keys the keys
   * @param priority the hint
   */
  public void hint(Namespace ns, Part part, KeyArray keys, Priority priority) {
    Objects.requireNonNull(keys, "keys");
    try (Call call = Call.begin()) {
      Call.check(kvbm.kvbm_manager_hint(
          call.use(handle), call.use(ns, "ns"), call.part(part), keys.address(call), keys.size(), priority.number()));
    }
  }

  /**
   * Keeps host blocks resident: the leading keys that are there.
   *
   * @param ns namespace of the keys
   * @param part null = component 0, whole model
   * @param keys the keys
   * @param owner any number chosen by the caller
   * @param timeout for how long; null = until it is ended
   * @return the pin
   */
  public Pin pin(Namespace ns, Part part, KeyArray keys, long owner, Duration timeout) {
    Objects.requireNonNull(keys, "keys");
    try (Call call = Call.begin()) {
      Struct out = call.memory(16);
      long left = Call.nanoseconds(timeout, "timeout");
      Call.check(kvbm.kvbm_manager_pin(call.use(handle), call.use(ns, "ns"), call.part(part), keys.address(call),
          keys.size(), owner, left, out.address, out.address + 8));
      return new Pin(out.getLong(0), (int) out.getLong(8));
    }
  }

  /**
   * Ends a pin early.
   *
   * @param pin the pin
   * @throws CallerException KVBM_ERR_STALE if it has ended
   */
  public void unpin(Pin pin) {
    try (Call call = Call.begin()) {
      Call.check(kvbm.kvbm_manager_unpin(call.use(handle), pin.id()));
    }
  }

  /**
   * Ends every pin of an owner.
   *
   * @param owner the owner's number
   * @return how many there were
   */
  public long unpinOwner(long owner) {
    try (Call call = Call.begin()) {
      Struct out = call.memory(8);
      Call.check(kvbm.kvbm_manager_unpin_owner(call.use(handle), owner, out.address));
      return out.getLong(0);
    }
  }

  /** {@return counters; cheap} */
  public ManagerStats stats() {
    try (Call call = Call.begin()) {
      Struct out = call.memory(SIZEOF_manager_stats).put(manager_stats_struct_size, SIZEOF_manager_stats);
      Call.check(kvbm.kvbm_manager_stats(call.use(handle), out.address));
      return ManagerStats.read(out);
    }
  }

  /** {@return all metrics as Prometheus text} */
  public String metrics() {
    return text(kvbm::kvbm_manager_metrics);
  }

  /** {@return the address on which this manager listens, with its port; empty if it does not} */
  public String nodeAddress() {
    return text(kvbm::kvbm_manager_node_address);
  }

  private interface Text {
    int write(long manager, long out, long capacity, long needed);
  }

  private String text(Text source) {
    return Call.twoPhase((out, capacity, needed) -> {
      try (Call call = Call.begin()) {
        return source.write(call.use(handle), out, capacity, needed);
      }
    });
  }

  /**
   * Sends block events to a queue. One queue per manager.
   *
   * @param queue null = stop
   */
  public void subscribe(CompletionQueue queue) {
    try (Call call = Call.begin()) {
      Call.check(kvbm.kvbm_manager_subscribe(call.use(handle), call.useOrNull(queue)));
    }
  }

  /** {@return a walk over all live blocks and stored records, which stops no work; blocks that come and go meanwhile
   * may or may not be seen} */
  public BlockScan scan() {
    return new BlockScan(this);
  }

  /** {@return a row for each node that is connected and each address that is not; none if this is no node} */
  public List<NodeRow> nodes() {
    for (int capacity = 16;;) {
      try (Call call = Call.begin()) {
        Struct out = call.output((long) SIZEOF_node_row * capacity);
        Struct count = call.memory(8);
        Call.check(kvbm.kvbm_manager_nodes(call.use(handle), out.address, capacity, count.address));
        int n = (int) count.getLong(0);
        if (n <= capacity) {
          List<NodeRow> rows = new ArrayList<>(n);
          for (int i = 0; i < n; ++i) rows.add(NodeRow.read(out, i * SIZEOF_node_row));
          return rows;
        }
        capacity = n + 16;
      }
    }
  }

  /**
   * Lists the devices that caches of this manager were attached on.
   *
   * @return a row for each, by ordinal
   */
  public List<DeviceRow> devices() {
    for (int capacity = 4;;) {
      try (Call call = Call.begin()) {
        Struct out = call.output((long) SIZEOF_device_row * capacity);
        Struct count = call.memory(8);
        Call.check(kvbm.kvbm_manager_devices(call.use(handle), out.address, capacity, count.address));
        int n = (int) count.getLong(0);
        if (n <= capacity) {
          List<DeviceRow> rows = new ArrayList<>(n);
          for (int i = 0; i < n; ++i) rows.add(DeviceRow.read(out, i * SIZEOF_device_row));
          return rows;
        }
        capacity = n;
      }
    }
  }

  /**
   * Returns the prefix of each request on each node.
   *
   * @param ns namespace of the keys
   * @param keys those of several requests one after the other
   * @param requestKeys number of keys of each request; null = one request
   * @param parts null = component 0, whole model
   * @param askNodes time to wait for the nodes' answers; null = own tiers only
   * @return a row for each node that has the first key of a request
   */
  public LocateResult locate(Namespace ns, KeyArray keys, int[] requestKeys, List<Part> parts, Duration askNodes) {
    Objects.requireNonNull(keys, "keys");
    long askNodesNs = askNodes == null ? 0 : Call.nanoseconds(askNodes, "askNodes");
    for (int capacity = 64;;) {
      try (Call call = Call.begin()) {
        Struct options = call.memory(SIZEOF_locate_options);
        Call.check(kvbm.kvbm_locate_options_init(options.address, SIZEOF_locate_options));
        options.put(locate_options_parts, Part.write(call, parts));
        options.put(locate_options_n_parts, parts == null ? 0L : parts.size());
        if (requestKeys != null) {
          long[] counts = new long[requestKeys.length];
          for (int i = 0; i < counts.length; ++i) counts[i] = requestKeys[i];
          options.put(locate_options_request_keys, call.longs(counts));
          options.put(locate_options_n_requests, (long) counts.length);
        }
        options.put(locate_options_ask_nodes_ns, askNodesNs);
        Struct out = call.output((long) SIZEOF_location * capacity);
        Struct count = call.memory(8);
        int status = Call.check(kvbm.kvbm_manager_locate(call.use(handle), call.use(ns, "ns"), keys.address(call),
            keys.size(), options.address, out.address, capacity, count.address));
        int n = (int) count.getLong(0);
        if (n <= capacity) {
          List<Location> rows = new ArrayList<>(n);
          for (int i = 0; i < n; ++i) rows.add(Location.read(out, i * SIZEOF_location));
          return new LocateResult(rows, status == Status.OK.number());
        }
        capacity = n + 64;
      }
    }
  }

  /** {@return what this process is in a shared tier set} */
  public ShareState share() {
    try (Call call = Call.begin()) {
      Struct out = call.memory(SIZEOF_share).put(share_struct_size, SIZEOF_share);
      Call.check(kvbm.kvbm_manager_share(call.use(handle), out.address));
      return new ShareState(ShareRole.of(out.getInt(share_role)), out.getLong(share_owner_pid),
          out.getLong(share_clients), out.getLong(share_takeovers), out.getLong(share_owners_lost),
          out.getLong(share_silent_lookups));
    }
  }
}
