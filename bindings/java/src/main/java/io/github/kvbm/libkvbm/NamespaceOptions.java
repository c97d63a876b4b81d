// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.util.Objects;

/** The scope of keys. Equal options give the same namespace on every machine. */
public final class NamespaceOptions {
  private final String model;
  private String tenant;
  private String adapter;
  private Geometry geometry;
  private byte[] secret;
  private long epoch;
  private long quotaBytes;
  private QuotaMode quotaMode = QuotaMode.EVICT;
  private String codec;
  private boolean allowLossy;
  private boolean weakHashes;

  /**
   * Names the model.
   *
   * @param model weights, revision, element type: what makes KV comparable
   */
  public NamespaceOptions(String model) {
    this.model = model;
  }

  /**
   * Names the tenant.
   *
   * @param name null = ""
   * @return this
   */
  public NamespaceOptions tenant(String name) {
    tenant = name;
    return this;
  }

  /**
   * Names an adapter: LoRA and the like.
   *
   * @param name null = none
   * @return this
   */
  public NamespaceOptions adapter(String name) {
    adapter = name;
    return this;
  }

  /**
   * Sets the facts of the model.
   *
   * @param facts null = opaque blocks
   * @return this
   */
  public NamespaceOptions geometry(Geometry facts) {
    geometry = facts;
    return this;
  }

  /**
   * Sets the secret of the tenant, from the operator and never from a request.
   *
   * @param bytes 32 bytes, copied; null = zeroes
   * @return this
   */
  public NamespaceOptions secret(byte[] bytes) {
    if (bytes != null && bytes.length != 32) {
      throw new IllegalArgumentException("a secret has 32 bytes, not " + bytes.length);
    }
    secret = bytes == null ? null : bytes.clone();
    return this;
  }

  /**
   * Sets the least epoch; the tiers may know a higher one.
   *
   * @param least 0 = any
   * @return this
   */
  public NamespaceOptions epoch(long least) {
    epoch = Call.size(least, "epoch");
    return this;
  }

  /**
   * Sets how many host bytes the namespace may use.
   *
   * @param bytes 0 = as it is set, or none
   * @param mode what a store does that finds it used up
   * @return this
   */
  public NamespaceOptions quota(long bytes, QuotaMode mode) {
    quotaBytes = Call.size(bytes, "bytes");
    quotaMode = Objects.requireNonNull(mode, "mode");
    return this;
  }

  /**
   * Says how its records are coded on tiers and links where anything is.
   *
   * @param recipe as "default", "int8" or "k:0-3=int8,default"; null = as the tier codes, without loss
   * @return this
   */
  public NamespaceOptions codec(String recipe) {
    codec = recipe;
    return this;
  }

  /**
   * Says whether blocks that were coded with loss may be given; else they are misses.
   *
   * @param allowed false unless said
   * @return this
   */
  public NamespaceOptions allowLossy(boolean allowed) {
    allowLossy = allowed;
    return this;
  }

  /**
   * Says whether {@link Namespace#fromHashes} takes hashes of fewer than 16 bytes. Others with equal hashes are easily
   * found, and get each other's blocks.
   *
   * @param taken false unless said
   * @return this
   */
  public NamespaceOptions weakHashes(boolean taken) {
    weakHashes = taken;
    return this;
  }

  int units() {
    return geometry == null ? 1 : geometry.units();
  }

  Struct write(Call call) {
    Struct out = call.memory(SIZEOF_namespace_options);
    Call.check(kvbm.kvbm_namespace_options_init(out.address, SIZEOF_namespace_options));
    out.put(namespace_options_quota_mode, quotaMode.number());
    out.put(namespace_options_tenant, call.text(tenant));
    out.put(namespace_options_model, call.text(model));
    out.put(namespace_options_adapter, call.text(adapter));
    out.put(namespace_options_geometry, call.useOrNull(geometry));
    if (secret != null) out.put(namespace_options_secret, call.memory(32).put(0, secret).address);
    out.put(namespace_options_epoch, epoch);
    out.put(namespace_options_quota_bytes, quotaBytes);
    out.put(namespace_options_codec, call.text(codec));
    out.put(namespace_options_allow_lossy, allowLossy ? 1 : 0);
    out.put(namespace_options_weak_hashes, weakHashes ? 1 : 0);
    return out;
  }
}
