// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Objects;

/** The scope of keys: tenant, model, adapter, geometry, epoch and secret. Opened by {@link Manager#namespace}. */
public final class Namespace extends NativeObject {
  private final int units;

  Namespace(long pointer, int units) {
    super("namespace", pointer, kvbm::kvbm_namespace_release);
    this.units = units;
  }

  int units() {
    return units;
  }

  /** {@return the 16-byte id; it changes with the epoch} */
  public Key id() {
    try (Call call = Call.begin()) {
      Struct out = call.memory(16);
      kvbm.kvbm_namespace_id(call.use(handle), out.address);
      return Key.of(out.bytes(0, 16));
    }
  }

  /** Makes every block stored so far unfindable, for good, in every tier. Keys made before do not match any more. */
  public void invalidate() {
    try (Call call = Call.begin()) {
      Struct error = call.error();
      Call.check(kvbm.kvbm_namespace_invalidate(call.use(handle), error.address), error);
    }
  }

  /** Forgets this namespace's blocks in every tier; keys stay valid. */
  public void reset() {
    try (Call call = Call.begin()) {
      Struct error = call.error();
      Call.check(kvbm.kvbm_namespace_reset(call.use(handle), error.address), error);
    }
  }

  /**
   * Changes the quota, for every handle of the namespace.
   *
   * @param bytes host bytes; 0 = none
   * @param mode what a store does that finds it used up
   */
  public void setQuota(long bytes, QuotaMode mode) {
    try (Call call = Call.begin()) {
      Call.check(kvbm.kvbm_namespace_set_quota(call.use(handle), Call.size(bytes, "bytes"), mode.number()));
    }
  }

  /**
   * Names consecutive full blocks, each by all tokens up to its end.
   *
   * @param tokens the prompt
   * @param blockTokens tokens of a block
   * @return a key for each full block
   */
  public KeyArray chain(int[] tokens, int blockTokens) {
    return chain(null, tokens, blockTokens, null);
  }

  /**
   * Names consecutive full blocks that follow others.
   *
   * @param previous the key of the block before; null at the start of a prompt
   * @param tokens the tokens from there on
   * @param blockTokens tokens of a block
   * @param extras bytes that identify a block besides its tokens: null, or for each full block null or bytes
   * @return a key for each full block
   */
  public KeyArray chain(Key previous, int[] tokens, int blockTokens, List<byte[]> extras) {
    Objects.requireNonNull(tokens, "tokens");
    try (Call call = Call.begin()) {
      return chain(call, previous, call.ints(tokens), tokens.length, blockTokens, extras);
    }
  }

  /**
   * Names consecutive full blocks like the method above, with tokens in direct memory.
   *
   * @param previous the key of the block before; null at the start of a prompt
   * @param tokens a direct buffer: 4 bytes per token in the machine's order, from its position to its limit
   * @param blockTokens tokens of a block
   * @param extras null, or for each full block null or bytes
   * @return a key for each full block
   */
  public KeyArray chain(Key previous, ByteBuffer tokens, int blockTokens, List<byte[]> extras) {
    long address = tokensAt(tokens);
    try (Call call = Call.begin()) {
      call.keep(tokens);
      return chain(call, previous, address, tokens.remaining() / 4, blockTokens, extras);
    }
  }

  private static long tokensAt(ByteBuffer tokens) {
    long address = Memory.address(tokens, "tokens");
    if (tokens.remaining() % 4 != 0 || address % 4 != 0) {
      throw new IllegalArgumentException("tokens are 4 bytes each, at an address that 4 divides");
    }
    return address;
  }

  private KeyArray chain(Call call, Key previous, long tokens, int n, int blockTokens, List<byte[]> extras) {
    int blocks = blocks(n, blockTokens, extras);
    ByteBuffer keys = Memory.allocate((long) Key.BYTES * blocks);
    Struct out = call.memory(8);
    Call.check(kvbm.kvbm_key_chain(call.use(handle), call.key(previous), tokens, n, blockTokens, extras(call, extras),
        Memory.address(keys, "keys"), blocks, out.address));
    return new KeyArray(keys, blocks);
  }

  /**
   * Names full blocks by their own tokens alone, wherever they stand.
   *
   * @param tokens the tokens
   * @param blockTokens tokens of a block
   * @param extras null, or for each full block null or bytes
   * @return a key for each full block
   */
  public KeyArray content(int[] tokens, int blockTokens, List<byte[]> extras) {
    Objects.requireNonNull(tokens, "tokens");
    int blocks = blocks(tokens.length, blockTokens, extras);
    try (Call call = Call.begin()) {
      ByteBuffer keys = Memory.allocate((long) Key.BYTES * blocks);
      Struct out = call.memory(8);
      Call.check(kvbm.kvbm_key_content(call.use(handle), call.ints(tokens), tokens.length, blockTokens,
          extras(call, extras), Memory.address(keys, "keys"), blocks, out.address));
      return new KeyArray(keys, blocks);
    }
  }

  /**
   * Makes keys of an engine's own hashes.
   *
   * @param hashes one hash after the other
   * @param hashBytes bytes of a hash, 16 to 64, or 1 to 64 with {@link NamespaceOptions#weakHashes}
   * @return a key for each hash
   */
  public KeyArray fromHashes(byte[] hashes, int hashBytes) {
    Objects.requireNonNull(hashes, "hashes");
    // A size that is not valid is the library's to refuse; what matters here is that it reads no further.
    int n = hashBytes < 1 ? 0 : hashes.length / hashBytes;
    if (hashBytes > 0 && hashes.length % hashBytes != 0) {
      throw new IllegalArgumentException(hashes.length + " bytes are no whole number of hashes of " + hashBytes);
    }
    try (Call call = Call.begin()) {
      ByteBuffer keys = Memory.allocate((long) Key.BYTES * n);
      Struct in = call.memory(hashes.length).put(0, hashes);
      int status = kvbm.kvbm_key_from_hashes(call.use(handle), in.address, hashBytes, n, Memory.address(keys, "keys"));
      if (status == KVBM_ERR_INVALID && hashBytes > 0 && hashBytes < 16) {
        throw KvbmException.of(status, "hashes of " + hashBytes
            + " bytes are taken where the namespace has weakHashes; 16 to 64 always");
      }
      Call.check(status);
      return new KeyArray(keys, n);
    }
  }

  private static int blocks(int tokens, int blockTokens, List<byte[]> extras) {
    Call.size(blockTokens, "blockTokens");
    int blocks = blockTokens < 1 ? 0 : tokens / blockTokens;
    if (extras != null && extras.size() != blocks) {
      throw new IllegalArgumentException(extras.size() + " extras for " + blocks + " full blocks");
    }
    return blocks;
  }

  private static long extras(Call call, List<byte[]> extras) {
    if (extras == null || extras.isEmpty()) return 0;
    Struct all = call.memory((long) SIZEOF_extra * extras.size());
    for (int i = 0; i < extras.size(); ++i) {
      byte[] bytes = extras.get(i);
      if (bytes == null || bytes.length == 0) continue;
      all.put(i * SIZEOF_extra + extra_data, call.memory(bytes.length).put(0, bytes).address);
      all.put(i * SIZEOF_extra + extra_bytes, (long) bytes.length);
    }
    return all.address;
  }

  @Override
  String facts() {
    return id() + ", units " + units();
  }
}
