// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

/**
 * Counters of one tier.
 *
 * @param capacityBytes hard limit
 * @param usedBytes used part of it
 * @param blocks number of blocks
 * @param payloadBytes payload bytes of the blocks
 * @param hits keys found by lookups, at the slowest tier that holds a part of the key
 * @param hitBytes payload bytes of the hits
 * @param misses keys not found, all counted at the last tier
 * @param stores blocks written into the tier
 * @param storeBytes bytes of these blocks
 * @param loads blocks read from the tier, verified
 * @param loadBytes bytes of these blocks
 * @param evictions evicted blocks
 * @param damaged records that failed verification
 * @param errors faults of the medium
 * @param metadataBytes memory for metadata of the blocks
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
