// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * Counters of one tier.
 *
 * @param capacityBytes hard cap
 * @param usedBytes of it
 * @param blocks that are here
 * @param payloadBytes of these
 * @param hits keys that lookups found, by the slowest tier that a part of them comes from
 * @param hitBytes of these
 * @param misses keys found in no tier count on the last
 * @param stores blocks that came in
 * @param storeBytes of these
 * @param loads blocks that went out, verified
 * @param loadBytes of these
 * @param evictions blocks that made room
 * @param damaged records whose bytes were not what was stored
 * @param errors faults of the medium
 * @param metadataBytes memory for what is known of the blocks
 * @param disabled 1 after a fault that took it out of service
 */
public record TierStats(long capacityBytes, long usedBytes, long blocks, long payloadBytes, long hits, long hitBytes,
    long misses, long stores, long storeBytes, long loads, long loadBytes, long evictions, long damaged, long errors,
    long metadataBytes, long disabled) {
  static TierStats read(Struct in, int at) {
    return new TierStats(in.getLong(at + tier_stats_capacity_bytes), in.getLong(at + tier_stats_used_bytes),
        in.getLong(at + tier_stats_blocks), in.getLong(at + tier_stats_payload_bytes),
        in.getLong(at + tier_stats_hits), in.getLong(at + tier_stats_hit_bytes), in.getLong(at + tier_stats_misses),
        in.getLong(at + tier_stats_stores), in.getLong(at + tier_stats_store_bytes),
        in.getLong(at + tier_stats_loads), in.getLong(at + tier_stats_load_bytes),
        in.getLong(at + tier_stats_evictions), in.getLong(at + tier_stats_damaged),
        in.getLong(at + tier_stats_errors), in.getLong(at + tier_stats_metadata_bytes),
        in.getLong(at + tier_stats_disabled));
  }
}
