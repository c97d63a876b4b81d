// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import io.github.kvbm.libkvbm.raw.kvbm;
import java.util.HexFormat;
import java.util.List;

/** Facts of a model and the tokens of one engine block. */
public final class Geometry extends NativeObject {
  private final int units;

  private Geometry(long pointer, int units) {
    super("geometry", pointer, kvbm::kvbm_geometry_release);
    this.units = units;
  }

  /** {@return engine blocks that make one stored block} */
  public int units() {
    return units;
  }

  /**
   * Creates a geometry.
   *
   * @param tokensPerBlock tokens of an engine block
   * @param units engine blocks that make one stored block; 1 = the same
   * @param components the model's components
   * @return the geometry
   */
  public static Geometry create(int tokensPerBlock, int units, List<Component> components) {
    Call.size(tokensPerBlock, "tokensPerBlock");
    Call.size(units, "units");
    try (Call call = Call.begin()) {
      Struct all = call.memory((long) SIZEOF_component * components.size());
      for (int i = 0; i < components.size(); ++i) components.get(i).write(all, i * SIZEOF_component);
      Struct out = call.memory(8);
      Struct error = call.error();
      Call.check(kvbm.kvbm_geometry_create(
          tokensPerBlock, units, all.address, components.size(), out.address, error.address), error);
      return new Geometry(out.getLong(0), units);
    }
  }

  /** {@return the 64-bit fingerprint that is part of the namespace} */
  public long fingerprint() {
    try (Call call = Call.begin()) {
      return kvbm.kvbm_geometry_fingerprint(call.use(handle));
    }
  }

  /**
   * Payload bytes of one record.
   *
   * @param component index of the component
   * @param shard part of it; null = all
   * @return bytes
   */
  public long recordBytes(int component, Shard shard) {
    try (Call call = Call.begin()) {
      Struct which = call.memory(SIZEOF_shard);
      if (shard != null) shard.write(which, 0);
      Struct out = call.memory(8);
      long where = shard == null ? 0 : which.address;
      Call.check(kvbm.kvbm_geometry_record_bytes(call.use(handle), component, where, out.address));
      return out.getLong(0);
    }
  }

  @Override
  String facts() {
    return HexFormat.of().toHexDigits(fingerprint()) + ", units " + units();
  }
}
