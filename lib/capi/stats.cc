#include "manager/stack/stats.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "manager/node/node_metrics.h"
#include "manager/stack/scan.h"
#include "manager/stack/tier_stack.h"

using kvbm::capi::guarded;

namespace {

// Limit of the rows of one call, which are held in memory meanwhile.
constexpr size_t kMostScanned = 65536;

kvbm_tier_stats_t to_c_tier(const kvbm::manager::TierSnapshot& t) {
  kvbm_tier_stats_t out{};
  out.capacity_bytes = t.capacity_bytes;
  out.used_bytes = t.used_bytes;
  out.blocks = t.blocks;
  out.payload_bytes = t.payload_bytes;
  out.hits = t.hits;
  out.hit_bytes = t.hit_bytes;
  out.misses = t.misses;
  out.stores = t.stores;
  out.store_bytes = t.store_bytes;
  out.loads = t.loads;
  out.load_bytes = t.load_bytes;
  out.evictions = t.evictions;
  out.damaged = t.damaged;
  out.errors = t.errors;
  out.metadata_bytes = t.metadata_bytes;
  out.disabled = t.disabled;
  return out;
}

kvbm_tier_codec_stats_t to_c_codec(const kvbm::tier::CodecStats& c) {
  kvbm_tier_codec_stats_t out{};
  out.coded = c.coded;
  out.plain_bytes = c.plain_bytes;
  out.stored_bytes = c.stored_bytes;
  out.sealed = c.sealed;
  out.left_plain = c.left_plain;
  out.encode_ns = c.encode_ns;
  out.decode_ns = c.decode_ns;
  out.decoded = c.decoded;
  out.decoded_bytes = c.decoded_bytes;
  out.refused_lossy = c.refused_lossy;
  out.missing_keys = c.missing_keys;
  out.damaged = c.damaged;
  out.stepped_down = c.stepped_down;
  out.probes = c.probes;
  out.lossy_error = c.value > 0 ? c.difference / c.value : 0;
  out.mode = c.mode;
  out.automatic = c.automatic;
  out.setting = c.setting;
  out.seals = c.seals;
  return out;
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_manager_stats(kvbm_manager_t* manager, kvbm_manager_stats_t* out_stats) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr || out_stats == nullptr) return kvbm::capi::invalid("manager or out_stats is NULL");
    if (!kvbm::capi::is_struct_size(out_stats->struct_size))
      return kvbm::capi::invalid("out_stats->struct_size is not set");
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    const kvbm::manager::Snapshot s = kvbm::manager::snapshot(manager->tenancy->observed());
    kvbm_manager_stats_t full{};
    full.n_tiers = s.n_tiers;
    full.lookups = s.lookups;
    full.keys_looked_up = s.keys_looked_up;
    full.keys_hit = s.keys_hit;
    full.holds = s.holds;
    full.pins = s.pins;
    full.matches = s.matches;
    full.operations_in_flight = s.operations_in_flight;
    full.stores_refused_room = s.refused_room;
    full.stores_refused_quota = s.refused_quota;
    full.deadline_missed = s.deadline_missed;
    full.position_mismatches = s.position_mismatches;
    full.verify_failures = s.verify_failures;
    full.offloads_skipped = s.offloads_skipped;
    full.loads_weighed = s.loads_weighed;
    full.load_predicted_ns = s.load_predicted_ns;
    full.load_actual_ns = s.load_actual_ns;
    full.loads_not_started = s.loads_not_started;
    full.blocks_left = s.blocks_left;
    full.compute_saved_ns = s.compute_saved_ns;
    full.compute_lost_ns = s.compute_lost_ns;
    for (size_t i = 0; i < s.n_tiers; ++i) full.tiers[i] = to_c_tier(s.tiers[i]);
    for (size_t i = 0; i < s.n_tiers; ++i) full.codec[i] = to_c_codec(s.tiers[i].codec);
    full.lossy_refused = s.lossy_refused;
    return kvbm::capi::init_options(out_stats, out_stats->struct_size, full);
  });
}

kvbm_status_t kvbm_manager_metrics(kvbm_manager_t* manager, char* out, size_t capacity, size_t* out_needed) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_needed != nullptr) *out_needed = 0;
    if (manager == nullptr) return kvbm::capi::invalid("manager is NULL");
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    std::string text = kvbm::manager::metrics_text(manager->tenancy->observed());
    if (manager->tenancy->node != nullptr) text += kvbm::manager::node_metrics_text(*manager->tenancy->node);
    return kvbm::capi::copy_text(text.data(), text.size(), out, capacity, out_needed);
  });
}

kvbm_status_t kvbm_manager_subscribe(kvbm_manager_t* manager, kvbm_queue_t* queue) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (manager == nullptr) return kvbm::capi::invalid("manager is NULL");
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    manager->tenancy->stack().host().events().subscribe(queue != nullptr ? queue->queue : nullptr);
    return KVBM_OK;
  });
}

kvbm_status_t kvbm_manager_scan(kvbm_manager_t* manager, uint64_t* inout_cursor, kvbm_scan_row_t* out_rows,
                                size_t capacity, size_t* out_n) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n != nullptr) *out_n = 0;
    if (manager == nullptr || inout_cursor == nullptr || out_n == nullptr) {
      return kvbm::capi::invalid("manager, inout_cursor or out_n is NULL");
    }
    if (out_rows == nullptr || capacity == 0) return kvbm::capi::invalid("out_rows is NULL or has no room");
    if (kvbm::capi::forked(*manager->tenancy)) return KVBM_ERR_FORKED;
    kvbm::manager::TierStack& stack = manager->tenancy->stack();
    if ((*inout_cursor >> 56) > stack.lower().count()) {
      return kvbm::capi::invalid("inout_cursor is not from a call of kvbm_manager_scan on this manager");
    }
    std::vector<kvbm::manager::ScanEntry> rows(std::min(capacity, kMostScanned));
    const size_t n = kvbm::manager::scan(stack, *inout_cursor, rows);
    for (size_t i = 0; i < n; ++i) {
      const kvbm::Family& family = stack.host().families().get(rows[i].id.family);
      kvbm_scan_row_t row{};
      std::memcpy(row.key.bytes, rows[i].id.key.bytes.data(), sizeof row.key);
      std::memcpy(row.namespace_id, family.ns.bytes.data(), sizeof row.namespace_id);
      row.bytes = rows[i].bytes;
      row.tier = rows[i].tier;
      row.component = family.component;
      row.uses = rows[i].uses;
      row.holds = rows[i].holds;
      row.pins = rows[i].pins;
      row.age = rows[i].age;
      out_rows[i] = row;
    }
    *out_n = n;
    return KVBM_OK;
  });
}

}  // extern "C"
