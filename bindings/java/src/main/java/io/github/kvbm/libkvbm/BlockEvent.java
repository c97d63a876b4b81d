// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * A block changed its place. A move between tiers is a {@link #STORED} in one and a {@link #REMOVED} in the other.
 *
 * @param sequence from 1, without gaps; a gap means that events were lost
 * @param kind one of the kinds of this class
 * @param tier 0 = host
 * @param namespaceId the namespace, 16 bytes
 * @param key the block
 * @param parent the block before; zero bytes = none or unknown
 * @param component index into the geometry's components
 */
public record BlockEvent(long sequence, int kind, int tier, Key namespaceId, Key key, Key parent, int component) {
  /** It is in this tier now. */
  public static final int STORED = KVBM_EVENT_STORED;

  /** It is not in this tier any more. */
  public static final int REMOVED = KVBM_EVENT_REMOVED;

  /** Everything went. */
  public static final int CLEARED = KVBM_EVENT_CLEARED;

  /** The tier was taken out of service. */
  public static final int DISABLED = KVBM_EVENT_DISABLED;

  static BlockEvent read(Struct in, int at) {
    return new BlockEvent(in.getLong(at + event_sequence), in.getInt(at + event_kind), in.getInt(at + event_tier),
        Key.of(in.bytes(at + event_namespace_id, 16)), Key.of(in.bytes(at + event_key, 16)),
        Key.of(in.bytes(at + event_parent, 16)), in.getInt(at + event_component));
  }
}
