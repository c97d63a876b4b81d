// SPDX-License-Identifier: Apache-2.0
package io.github.kvbm.libkvbm;

import static io.github.kvbm.libkvbm.raw.kvbmConstants.*;

import java.util.ArrayList;
import java.util.List;

/**
 * Counters of a manager.
 *
 * @param lookups calls
 * @param keysLookedUp keys in these calls
 * @param keysHit keys found
 * @param holds live now
 * @param pins live now
 * @param matches live now
 * @param operationsInFlight live now
 * @param storesRefusedRoom blocks without a free slot
 * @param storesRefusedQuota blocks beyond a quota
 * @param deadlineMissed items not done in time
 * @param positionMismatches content keys at another position
 * @param verifyFailures damaged blocks found
 * @param offloadsSkipped blocks that a full offload queue did not take
 * @param loadsWeighed loads with {@link LoadOptions#computeBlockNs} that were started
 * @param loadPredictedNs sum of their predicted times
 * @param loadActualNs sum of their measured times
 * @param loadsNotStarted loads not started, because computing was predicted to be faster
 * @param blocksLeft keys left to the engine to compute
 * @param computeSavedNs sum of computing time minus load time, where loading was faster
 * @param computeLostNs sum of load time minus computing time, where loading was slower
 * @param lossyRefused blocks that a handle without allowLossy did not get
 * @param tiers the tiers, host first
 * @param codec counters of coding of the tiers, in the same order
 */
public record ManagerStats(long lookups, long keysLookedUp, long keysHit, long holds, long pins, long matches,
    long operationsInFlight, long storesRefusedRoom, long storesRefusedQuota, long deadlineMissed,
    long positionMismatches, long verifyFailures, long offloadsSkipped, long loadsWeighed,
    long loadPredictedNs, long loadActualNs, long loadsNotStarted, long blocksLeft, long computeSavedNs,
    long computeLostNs, long lossyRefused, List<TierStats> tiers, List<TierCodecStats> codec) {
  static ManagerStats read(Struct in) {
    List<TierStats> tiers = new ArrayList<>();
    List<TierCodecStats> codec = new ArrayList<>();
    for (int i = 0; i < in.getInt(manager_stats_n_tiers); ++i) {
      codec.add(TierCodecStats.read(in, manager_stats_codec + i * SIZEOF_tier_codec_stats));
      tiers.add(TierStats.read(in, manager_stats_tiers + i * SIZEOF_tier_stats));
    }
    return new ManagerStats(in.getLong(manager_stats_lookups), in.getLong(manager_stats_keys_looked_up),
        in.getLong(manager_stats_keys_hit), in.getLong(manager_stats_holds), in.getLong(manager_stats_pins),
        in.getLong(manager_stats_matches), in.getLong(manager_stats_operations_in_flight),
        in.getLong(manager_stats_stores_refused_room), in.getLong(manager_stats_stores_refused_quota),
        in.getLong(manager_stats_deadline_missed), in.getLong(manager_stats_position_mismatches),
        in.getLong(manager_stats_verify_failures), in.getLong(manager_stats_offloads_skipped),
        in.getLong(manager_stats_loads_weighed), in.getLong(manager_stats_load_predicted_ns),
        in.getLong(manager_stats_load_actual_ns), in.getLong(manager_stats_loads_not_started),
        in.getLong(manager_stats_blocks_left), in.getLong(manager_stats_compute_saved_ns),
        in.getLong(manager_stats_compute_lost_ns), in.getLong(manager_stats_lossy_refused), List.copyOf(tiers),
        List.copyOf(codec));
  }
}
