// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Objects;
import java.util.function.LongConsumer;

/**
 * An engine's own paged cache, described once; attached by {@link Manager#attach}. Its tensors are kept until it is
 * closed, which waits for operations that touch them.
 */
public final class Cache extends NativeObject {
  private final Manager manager;
  private final int parts;
  private final int units;

  private Cache(long pointer, Manager manager, int parts, int units, List<CachePart> tensors) {
    super("cache", pointer, new Release(tensors));
    this.manager = manager;
    this.parts = parts;
    this.units = units;
  }

  /** Keeps the tensors until the library has forgotten them. */
  private static final class Release implements LongConsumer {
    private List<CachePart> tensors;

    Release(List<CachePart> tensors) {
      this.tensors = tensors;
    }

    @Override
    public void accept(long pointer) {
      kvbm.kvbm_cache_release(pointer);
      tensors = null;
    }
  }

  static Cache attach(
      Manager manager, Namespace ns, int nBlocks, List<CachePart> parts, MemoryKind memory, int device) {
    List<CachePart> all = List.copyOf(parts);
    Call.size(nBlocks, "nBlocks");
    try (Call call = Call.begin()) {
      Struct options = call.memory(SIZEOF_cache_options);
      Call.check(kvbm.kvbm_cache_options_init(options.address, SIZEOF_cache_options));
      Struct rows = call.memory((long) SIZEOF_cache_part * all.size());
      for (int i = 0; i < all.size(); ++i) all.get(i).write(call, rows, i * SIZEOF_cache_part);
      options.put(cache_options_n_blocks, nBlocks);
      options.put(cache_options_parts, rows.address);
      options.put(cache_options_n_parts, (long) all.size());
      options.put(cache_options_memory, memory.number());
      options.put(cache_options_device, device);
      Struct out = call.memory(8);
      Struct error = call.error();
      Call.check(kvbm.kvbm_cache_attach(call.use(manager.handle), call.use(ns, "ns"), options.address, out.address,
          error.address), error);
      return new Cache(out.getLong(0), manager, all.size(), ns.units(), all);
    }
  }

  /**
   * Looks for the longest prefix of keys, of all of the cache's parts.
   *
   * @param keys the prompt's keys
   * @return what was found
   */
  public Match lookup(KeyArray keys) {
    return lookup(keys, null);
  }

  /**
   * Looks for keys, of all of the cache's parts.
   *
   * @param keys the prompt's keys
   * @param options without parts; null = defaults
   * @return what was found
   */
  public Match lookup(KeyArray keys, LookupOptions options) {
    Objects.requireNonNull(keys, "keys");
    try (Call call = Call.begin()) {
      Struct out = call.memory(16);
      long how = options == null ? 0 : options.write(call).address;
      Call.check(kvbm.kvbm_cache_lookup(
          call.use(handle), keys.address(call), keys.size(), how, out.address, out.address + 8));
      return new Match(out.getLong(0), manager, (int) out.getLong(8));
    }
  }

  /**
   * Makes a stream wait for a layer of a load. That the stream goes on does not say that the load was right: what was
   * computed behind the wait counts only once the operation has completed well. With {@link WaitLayers#ISSUED} it
   * blocks until the layer was given to the driver or the load has ended.
   *
   * @param load submitted with {@link LoadOptions#waitLayers}
   * @param layer of the part's shard
   * @param stream a CUstream or cudaStream_t of the cache's device; 0 is the legacy one
   */
  public void waitLayer(Operation load, int layer, long stream) {
    Call.size(layer, "layer");
    try (Call call = Call.begin()) {
      Call.check(kvbm.kvbm_cache_wait_layer(call.use(handle), load.libraryId(), layer, stream));
    }
  }

  /**
   * Copies engine blocks into the host tier under their keys, and waits for it.
   *
   * @param keys the keys
   * @param blockIds [parts][keys * units], {@link Kvbm#NO_BLOCK} where the engine has no block of that part
   * @return {@link Status#OK} or {@link Status#PARTIAL}
   */
  public Status store(KeyArray keys, int[] blockIds) {
    return store(keys, blockIds, null);
  }

  /**
   * Copies engine blocks into the host tier under their keys, and waits for it.
   *
   * @param keys the keys
   * @param blockIds [parts][keys * units], {@link Kvbm#NO_BLOCK} where the engine has no block of that part
   * @param options null = defaults
   * @return {@link Status#OK} or {@link Status#PARTIAL}
   */
  public Status store(KeyArray keys, int[] blockIds, StoreOptions options) {
    checkStore(keys, blockIds);
    try (Call call = Call.begin()) {
      ItemStatus statuses = new ItemStatus(call, options == null ? null : options.statuses(), keys.size());
      Struct how = options == null ? null : options.write(call, keys.size(), units);
      if (how != null) how.put(store_options_item_status, statuses.address());
      int status = kvbm.kvbm_cache_store(call.use(handle), keys.address(call), call.ints(blockIds), keys.size(),
          how == null ? 0 : how.address, 0, 0);
      statuses.read();
      return Status.of(Call.check(status));
    }
  }

  /**
   * Copies engine blocks into the host tier under their keys. Until the operation completes, the blocks are the
   * library's to read.
   *
   * @param keys the keys
   * @param blockIds as for {@link #store(KeyArray, int[])}
   * @param options null = defaults
   * @param queue where it completes
   * @return the operation
   */
  public Operation storeAsync(KeyArray keys, int[] blockIds, StoreOptions options, CompletionQueue queue) {
    checkStore(keys, blockIds);
    Objects.requireNonNull(queue, "queue");
    try (Call call = Call.begin()) {
      long pointer = call.use(handle);
      Struct how = (options == null ? new StoreOptions() : options).write(call, keys.size(), units);
      return queue.submit(call, keys.size(), true, this, null, null, (q, operation) -> {
        how.put(store_options_out_operation, operation.operationAddress());
        how.put(store_options_item_status, operation.statusAddress());
        return kvbm.kvbm_cache_store(pointer, keys.address(call), call.ints(blockIds), keys.size(), how.address, q,
            operation.id());
      });
    }
  }

  private void checkStore(KeyArray keys, int[] blockIds) {
    Objects.requireNonNull(keys, "keys");
    Objects.requireNonNull(blockIds, "blockIds");
    if (blockIds.length != (long) keys.size() * units * parts) {
      throw new IllegalArgumentException(blockIds.length + " block ids for " + keys.size() + " keys of " + units
          + " units and " + parts + " parts");
    }
  }

  /**
   * Loads matched blocks into the engine's blocks, verifies every byte, and waits for it.
   *
   * @param match result of a lookup of this cache
   * @param blockIds [parts][n], {@link Kvbm#NO_BLOCK} to skip a block
   * @return {@link Status#OK}, or {@link Status#PARTIAL} if some failed: their engine blocks are undefined
   */
  public Status load(Match match, int[] blockIds) {
    return load(match, blockIds, null);
  }

  /**
   * Loads matched blocks into the engine's blocks, verifies every byte, and waits for it.
   *
   * @param match result of a lookup of this cache
   * @param blockIds [parts][n], {@link Kvbm#NO_BLOCK} to skip a block
   * @param options null = defaults
   * @return {@link Status#OK}, or {@link Status#PARTIAL} if some failed: their engine blocks are undefined
   */
  public Status load(Match match, int[] blockIds, LoadOptions options) {
    int ids = idsOfPart(blockIds);
    try (Call call = Call.begin()) {
      ItemStatus statuses = new ItemStatus(call, options == null ? null : options.statuses(), keysOf(ids));
      Struct how = options == null ? null : options.write(call, keysOf(ids));
      if (how != null) how.put(load_options_item_status, statuses.address());
      int status = kvbm.kvbm_cache_load(call.use(handle), call.use(match, "match"), call.ints(blockIds), ids,
          how == null ? 0 : how.address, 0, 0);
      statuses.read();
      return Status.of(Call.check(status));
    }
  }

  /**
   * Brings matched blocks into the engine's blocks, every byte verified. Until the operation completes, the blocks are
   * the library's to write. The match may be closed meanwhile.
   *
   * @param match result of a lookup of this cache
   * @param blockIds [parts][n], {@link Kvbm#NO_BLOCK} to skip a block
   * @param options null = defaults
   * @param queue where it completes
   * @return the operation
   */
  public Operation loadAsync(Match match, int[] blockIds, LoadOptions options, CompletionQueue queue) {
    int ids = idsOfPart(blockIds);
    Objects.requireNonNull(queue, "queue");
    try (Call call = Call.begin()) {
      long pointer = call.use(handle);
      long matched = call.use(match, "match");
      Struct how = (options == null ? new LoadOptions() : options).write(call, keysOf(ids));
      return queue.submit(call, keysOf(ids), true, this, null, null, (q, operation) -> {
        how.put(load_options_out_operation, operation.operationAddress());
        how.put(load_options_item_status, operation.statusAddress());
        return kvbm.kvbm_cache_load(pointer, matched, call.ints(blockIds), ids, how.address, q, operation.id());
      });
    }
  }

  /**
   * How many bytes {@link #encode(int[], CodecMode, CodeOptions, ByteBuffer)} needs.
   *
   * @param nBlocks engine blocks
   * @param options null = defaults
   * @return enough whatever is in them and whichever the mode
   */
  public long codeRoom(int nBlocks, CodeOptions options) {
    Call.size(nBlocks, "nBlocks");
    try (Call call = Call.begin()) {
      Struct out = call.memory(8);
      Struct error = call.error();
      Call.check(kvbm.kvbm_cache_code_room(call.use(handle), nBlocks, how(call, options, false), out.address,
          error.address), error);
      return out.getLong(0);
    }
  }

  /**
   * Codes engine blocks of one part as {@link Codec} does bytes, with the same result: on a device by its kernels.
   * Nothing of it enters a tier. The calling thread waits until it is done, also when a stream has to get there first.
   *
   * @param blockIds as many as a stored block has engine blocks make one
   * @param mode the mode
   * @param options null = defaults
   * @return a direct buffer of the coded bytes
   */
  public ByteBuffer encode(int[] blockIds, CodecMode mode, CodeOptions options) {
    Objects.requireNonNull(blockIds, "blockIds");
    ByteBuffer out = Memory.allocate(codeRoom(blockIds.length, options));
    encode(blockIds, mode, options, out);
    return out;
  }

  /**
   * Encodes engine blocks into a buffer, and sets its limit to the end of the output. After an exception its contents
   * are undefined.
   *
   * @param blockIds as for {@link #encode(int[], CodecMode, CodeOptions)}
   * @param mode the mode
   * @param options null = defaults
   * @param out a direct buffer with {@link #codeRoom} bytes between position and limit
   * @return the number of bytes written
   */
  public int encode(int[] blockIds, CodecMode mode, CodeOptions options, ByteBuffer out) {
    Objects.requireNonNull(blockIds, "blockIds");
    long to = Memory.writable(out, "out");
    try (Call call = Call.begin()) {
      call.keep(out);
      Struct n = call.memory(8);
      Struct error = call.error();
      Call.check(kvbm.kvbm_cache_encode(call.use(handle), call.ints(blockIds), blockIds.length, mode.number(),
          how(call, options, false), to, out.remaining(), n.address, error.address), error);
      int bytes = (int) n.getLong(0);
      out.limit(out.position() + bytes);
      return bytes;
    }
  }

  /**
   * Decodes the result of encode into engine blocks; every byte is verified before it is written. After a {@link
   * MissException} the blocks are undefined: compute them. Lossy blocks differ from what the model computed: do not
   * store them under keys for which readers expect exact bytes.
   *
   * @param coded a direct buffer, which may be read-only
   * @param blockIds without repeats
   * @param allowLossy accept bytes that differ from the encoded ones; else they are an {@link UnavailableException}
   * @param options null = defaults
   */
  public void decode(ByteBuffer coded, int[] blockIds, boolean allowLossy, CodeOptions options) {
    Objects.requireNonNull(blockIds, "blockIds");
    long from = Memory.address(coded, "coded");
    try (Call call = Call.begin()) {
      call.keep(coded);
      Struct error = call.error();
      Call.check(kvbm.kvbm_cache_decode(call.use(handle), from, coded.remaining(), call.ints(blockIds),
          blockIds.length, how(call, options, allowLossy), error.address), error);
    }
  }

  private static long how(Call call, CodeOptions options, boolean allowLossy) {
    return (options == null ? new CodeOptions() : options)
        .write(call, allowLossy ? (int) KVBM_CODEC_ALLOW_LOSSY : 0).address;
  }

  /** Block ids of one part, of a list that has them for all. */
  int idsOfPart(int[] blockIds) {
    Objects.requireNonNull(blockIds, "blockIds");
    if (blockIds.length % parts != 0) {
      throw new IllegalArgumentException(blockIds.length + " block ids for " + parts + " parts");
    }
    return blockIds.length / parts;
  }

  /** Stored blocks that so many engine blocks are. */
  int keysOf(int ids) {
    return (ids + units - 1) / units;
  }

  @Override
  String facts() {
    return "parts " + parts + ", units " + units;
  }
}
