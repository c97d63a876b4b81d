// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * Reports a change of a block's location. A move between tiers is a {@link EventKind#STORED} in one and a {@link
 * EventKind#REMOVED} in the other.
 *
 * @param sequence from 1, without gaps; a gap means that events were lost
 * @param kind kind of the event
 * @param tier 0 = host
 * @param namespaceId the namespace, 16 bytes
 * @param key the block
 * @param parent the block before; zero bytes = none or unknown
 * @param component index into the geometry's components
 */
public record BlockEvent(long sequence, EventKind kind, int tier, Key namespaceId, Key key, Key parent, int component) {
  static BlockEvent read(Struct in, int at) {
    return new BlockEvent(in.getLong(at + event_sequence), EventKind.of(in.getInt(at + event_kind)),
        in.getInt(at + event_tier), Key.of(in.bytes(at + event_namespace_id, 16)), Key.of(in.bytes(at + event_key, 16)),
        Key.of(in.bytes(at + event_parent, 16)), in.getInt(at + event_component));
  }

  /** {@return what it says, the tier by its name} */
  @Override
  public String toString() {
    return "BlockEvent[" + sequence + ", " + kind + ", " + Kvbm.tierName(tier) + ", " + key + "]";
  }
}
