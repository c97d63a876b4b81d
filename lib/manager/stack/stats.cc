#include "manager/stack/stats.h"

#include "manager/stack/pins.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

void fill_traffic(const TierCounters& from, TierSnapshot& to) {
  to.hits = get(from.hits);
  to.hit_bytes = get(from.hit_bytes);
  to.misses = get(from.misses);
  to.stores = get(from.stores);
  to.store_bytes = get(from.store_bytes);
  to.loads = get(from.loads);
  to.load_bytes = get(from.load_bytes);
  to.evictions = get(from.evictions);
  to.damaged = get(from.damaged);
  to.errors = get(from.errors);
}

void fill_cost(LowerTiers& lower, TierIndex index, TierSnapshot& to) {
  const copy::Expectation expect = lower.cost(index).expect(lower.host().env().clock().now_ns());
  to.read_start_ns = expect.start_ns;
  to.read_bytes_per_s = static_cast<uint64_t>(1e9 / expect.ns_per_byte);
}

void fill_host(HostTier& host, TierSnapshot& out) {
  const block::Counters blocks = host.table().counters();
  out.capacity_bytes = host.arena().capacity_bytes();
  out.blocks = blocks.registered;
  out.used_bytes = static_cast<uint64_t>(blocks.slots - blocks.free) * host.arena().slot_bytes();
  out.payload_bytes = blocks.payload_bytes;
  out.metadata_bytes = host.table().bytes() + host.holds().bytes() + host.unit_index().bytes();
}

void fill_below(LowerTiers& lower, TierIndex index, TierSnapshot& tier) {
  const tier::TierStats stats = lower.tier(index).stats();
  tier.capacity_bytes = stats.capacity_bytes;
  tier.used_bytes = stats.used_bytes;
  tier.blocks = stats.records;
  tier.payload_bytes = stats.payload_bytes;
  tier.metadata_bytes = stats.index_bytes;
  tier.staging_bytes = stats.staging_bytes;
  tier.codec = stats.codec;
  tier.store = stats.store;
  tier.moved_down = stats.moved_down;
  tier.moves_lost = stats.moves_lost;
  tier.full = stats.full;
  tier.faults = stats.faults;
  tier.second_answers = stats.second_answers;
  tier.disabled = lower.disabled(index) ? 1 : 0;
}

}  // namespace

Snapshot snapshot(TierStack& stack) {
  HostTier& host = stack.host();
  LowerTiers& lower = stack.lower();
  Snapshot out;
  const Counters& c = host.counters();
  out.n_tiers = static_cast<uint32_t>(lower.count() + 1);
  out.lookups = get(c.lookups);
  out.keys_looked_up = get(c.keys_looked_up);
  out.keys_hit = get(c.keys_hit);
  out.partial_hits = get(c.partial_hits);
  out.keys_resliced = get(c.keys_resliced);
  out.shards_missing = get(c.shards_missing);
  out.holds = host.holds().live();
  out.matches = c.matches();
  out.operations_in_flight = get(c.operations);
  out.refused_room = get(c.refused_room);
  out.refused_quota = get(c.refused_quota);
  out.policy_refused = host.table().counters().policy_refused;
  out.underflows = host.table().underflows();
  out.deadline_missed = get(c.deadline_missed);
  out.position_mismatches = get(c.position_mismatches);
  out.verify_failures = get(c.verify_failures);
  out.offloads_skipped = get(c.offload_skipped);
  out.offloads_at_limit = get(c.offload_at_limit);
  out.given_lost = host.received().lost();
  out.lossy_refused = get(c.lossy_refused);
  out.loads_weighed = c.load_predicted.count();
  out.load_predicted_ns = c.load_predicted.sum();
  out.load_actual_ns = c.load_actual.sum();
  out.loads_not_started = get(c.loads_not_started);
  out.blocks_left = get(c.blocks_left);
  out.compute_saved_ns = get(c.compute_saved_ns);
  out.compute_lost_ns = get(c.compute_lost_ns);
  for (size_t t = 0; t < out.n_tiers; ++t) fill_traffic(c.tiers[t], out.tiers[t]);
  for (size_t t = 0; t < out.n_tiers; ++t) fill_cost(lower, static_cast<TierIndex>(t), out.tiers[t]);
  fill_host(host, out.tiers[0]);
  for (size_t t = 1; t < out.n_tiers; ++t) fill_below(lower, static_cast<TierIndex>(t), out.tiers[t]);
  return out;
}

Snapshot snapshot(const Observed& observed) {
  Snapshot out = snapshot(observed.stack);
  out.pins = observed.pins.size();
  return out;
}

}  // namespace kvbm::manager
