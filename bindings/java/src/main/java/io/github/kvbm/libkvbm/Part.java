// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import java.util.List;
import java.util.Objects;

/**
 * The records of a namespace that a call means. If a part may be null, null is component 0 and the whole model.
 *
 * @param component index into the geometry's components
 * @param shard layers and heads of it
 */
public record Part(int component, Shard shard) {
  /**
   * Checks that there is a shard.
   *
   * @param component index into the geometry's components
   * @param shard layers and heads of it
   */
  public Part {
    Objects.requireNonNull(shard, "shard");
  }

  /**
   * A whole component.
   *
   * @param component index into the geometry's components
   * @return all layers and heads of it
   */
  public static Part of(int component) {
    return new Part(component, Shard.WHOLE);
  }

  void write(Struct out, int at) {
    out.put(at + part_component, component);
    shard.write(out, at + part_shard);
  }

  static long write(Call call, List<Part> parts) {
    if (parts == null || parts.isEmpty()) return 0;
    Struct out = call.memory((long) SIZEOF_part * parts.size());
    for (int i = 0; i < parts.size(); ++i) parts.get(i).write(out, i * SIZEOF_part);
    return out.address;
  }
}
