// The manager's counters as Prometheus text. docs/operations.md lists the names.
#include <algorithm>
#include <array>
#include <string>

#include "base/telemetry/metrics.h"
#include "base/thread/memory_wait.h"
#include "cluster/same_host/mapped_pools.h"
#include "device/context/device.h"
#include "device/storage/storage_reads.h"
#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/namespaces/namespaces.h"
#include "manager/share/share_state.h"
#include "manager/stack/pins.h"
#include "manager/stack/stats.h"

namespace kvbm::manager {

namespace {

// One metric, and the field of T that is its value.
template <class T>
struct MetricRow {
  const char* name;
  const char* help;
  uint64_t T::*value;
};
constexpr MetricRow<Snapshot> kCounters[] = {
    {"kvbm_lookups_total", "Lookups.", &Snapshot::lookups},
    {"kvbm_lookup_keys_total", "Keys looked up.", &Snapshot::keys_looked_up},
    {"kvbm_lookup_hits_total", "Keys that hit in some tier.", &Snapshot::keys_hit},
    {"kvbm_lookup_partial_hits_total", "Stored blocks found by their leading engine blocks.", &Snapshot::partial_hits},
    {"kvbm_lookup_resliced_total", "Keys found in records of another tensor-parallel size.", &Snapshot::keys_resliced},
    {"kvbm_lookup_shards_missing_total",
     "Lookups that found some shards of another tensor-parallel size, and not all that a block needs.",
     &Snapshot::shards_missing},
    {"kvbm_stores_refused_room_total", "Blocks not stored because everything was held.", &Snapshot::refused_room},
    {"kvbm_stores_refused_quota_total", "Blocks not stored because of a quota.", &Snapshot::refused_quota},
    {"kvbm_policy_refused_total", "Choices of a caller's eviction policy that could not be used.",
     &Snapshot::policy_refused},
    {"kvbm_reference_underflows_total", "Releases of references that nothing held: refused, and a fault.",
     &Snapshot::underflows},
    {"kvbm_deadlines_missed_total", "Operations that ended at their deadline.", &Snapshot::deadline_missed},
    {"kvbm_position_mismatches_total", "Content-keyed blocks refused at another position.",
     &Snapshot::position_mismatches},
    {"kvbm_offloads_skipped_total",
     "Blocks that a full offload queue or tier did not take, or that were evicted before their turn.",
     &Snapshot::offloads_skipped},
    {"kvbm_offloads_at_limit_total",
     "Of these, blocks that another node or process did not take: it has as many namespaces, components and shards as "
     "it may.",
     &Snapshot::offloads_at_limit},
    {"kvbm_given_blocks_lost_total", "Blocks that other nodes gave and that were evicted here, on no own tier.",
     &Snapshot::given_lost},
    {"kvbm_lossy_refused_total", "Blocks in the host that a reader without allow_lossy was not given.",
     &Snapshot::lossy_refused},
    {"kvbm_verify_failures_total", "Host blocks whose bytes failed verification.", &Snapshot::verify_failures},
    {"kvbm_loads_not_started_total", "Loads that were not started because computing is quicker.",
     &Snapshot::loads_not_started},
    {"kvbm_load_blocks_left_total", "Keys that loads left to the engine to compute.", &Snapshot::blocks_left},
    {"kvbm_compute_saved_nanoseconds_total", "Computing that loads made unnecessary, less their own time.",
     &Snapshot::compute_saved_ns},
    {"kvbm_compute_lost_nanoseconds_total", "Time of loads that took longer than computing.",
     &Snapshot::compute_lost_ns},
};
constexpr MetricRow<Snapshot> kGauges[] = {
    {"kvbm_holds", "Holds that callers own.", &Snapshot::holds},
    {"kvbm_pins", "Pins.", &Snapshot::pins},
    {"kvbm_matches", "Matches not released.", &Snapshot::matches},
    {"kvbm_operations_in_flight", "Operations accepted and not completed.", &Snapshot::operations_in_flight},
};

constexpr MetricRow<TierSnapshot> kTierCounters[] = {
    {"kvbm_tier_hits_total", "Keys that lookups found, by the slowest tier that a part of them comes from.",
     &TierSnapshot::hits},
    {"kvbm_tier_hit_bytes_total", "Payload bytes of these, by the tier of each part.", &TierSnapshot::hit_bytes},
    {"kvbm_tier_misses_total", "Keys found in no tier, counted on the last.", &TierSnapshot::misses},
    {"kvbm_tier_stores_total", "Blocks that came into the tier.", &TierSnapshot::stores},
    {"kvbm_tier_store_bytes_total", "Payload bytes that came in.", &TierSnapshot::store_bytes},
    {"kvbm_tier_loads_total", "Blocks that went out of the tier, verified.", &TierSnapshot::loads},
    {"kvbm_tier_load_bytes_total", "Payload bytes that went out.", &TierSnapshot::load_bytes},
    {"kvbm_tier_evictions_total", "Blocks that the tier let go.", &TierSnapshot::evictions},
    {"kvbm_tier_moved_down_total", "Blocks that the tier let go and the next one below took over.",
     &TierSnapshot::moved_down},
    {"kvbm_tier_moves_lost_total", "Blocks that the tier let go and the next one below was to take over, and did not.",
     &TierSnapshot::moves_lost},
    {"kvbm_tier_damaged_total", "Records that failed verification.", &TierSnapshot::damaged},
    {"kvbm_tier_errors_total", "Operations of the tier that failed.", &TierSnapshot::errors},
    {"kvbm_tier_full_total", "Times that the tier's file system had no room within the tier's capacity.",
     &TierSnapshot::full},
    {"kvbm_tier_faults_total", "Times that a plug-in hung, gave wrong bytes or answered twice.", &TierSnapshot::faults},
    {"kvbm_tier_second_answers_total", "Answers of a plug-in to calls that were over.", &TierSnapshot::second_answers},
};
constexpr MetricRow<TierSnapshot> kTierGauges[] = {
    {"kvbm_tier_capacity_bytes", "Hard cap.", &TierSnapshot::capacity_bytes},
    {"kvbm_tier_used_bytes", "Bytes that count against the cap.", &TierSnapshot::used_bytes},
    {"kvbm_tier_blocks", "Blocks in the tier.", &TierSnapshot::blocks},
    {"kvbm_tier_payload_bytes", "Payload bytes of these.", &TierSnapshot::payload_bytes},
    {"kvbm_tier_metadata_bytes", "Memory for the tier's index and slots.", &TierSnapshot::metadata_bytes},
    {"kvbm_tier_staging_bytes", "Memory that reads from the tier land in now.", &TierSnapshot::staging_bytes},
    {"kvbm_tier_disabled", "1 after a fault that took the tier out of service.", &TierSnapshot::disabled},
    {"kvbm_tier_read_start_nanoseconds", "Expected wait for the first byte of a load.", &TierSnapshot::read_start_ns},
    {"kvbm_tier_read_bytes_per_second", "Expected speed of a load.", &TierSnapshot::read_bytes_per_s},
};
constexpr MetricRow<tier::CodecStats> kCodecCounters[] = {
    {"kvbm_tier_coded_total", "Records stored coded.", &tier::CodecStats::coded},
    {"kvbm_tier_codec_plain_bytes_total", "Payload bytes of coded and sealed records, before.",
     &tier::CodecStats::plain_bytes},
    {"kvbm_tier_codec_stored_bytes_total", "And after.", &tier::CodecStats::stored_bytes},
    {"kvbm_tier_sealed_total", "Records stored sealed.", &tier::CodecStats::sealed},
    {"kvbm_tier_left_plain_total", "Records stored as they were though the tier codes.", &tier::CodecStats::left_plain},
    {"kvbm_tier_encode_nanoseconds_total", "Time of all threads for encoding.", &tier::CodecStats::encode_ns},
    {"kvbm_tier_decode_nanoseconds_total", "Time of all threads for decoding.", &tier::CodecStats::decode_ns},
    {"kvbm_tier_decoded_total", "Coded or sealed records that came back.", &tier::CodecStats::decoded},
    {"kvbm_tier_decoded_bytes_total", "Their bytes, plain.", &tier::CodecStats::decoded_bytes},
    {"kvbm_tier_refused_lossy_total", "Records that no open handle of their namespace allows.",
     &tier::CodecStats::refused_lossy},
    {"kvbm_tier_missing_keys_total",
     "Records sealed with a key that is not in seal.key_file, or not sealed where there is one.",
     &tier::CodecStats::missing_keys},
    {"kvbm_tier_codec_damaged_total", "Records that did not decode or open.", &tier::CodecStats::damaged},
    {"kvbm_tier_codec_stepped_down_total", "Times that encoding held writing up.", &tier::CodecStats::stepped_down},
    {"kvbm_tier_codec_probes_total", "Records that codec = auto coded only to measure.", &tier::CodecStats::probes},
};
constexpr MetricRow<tier::StoreStats> kStoreCounters[] = {
    {"kvbm_store_requests_total", "Requests sent to the store, tries included.", &tier::StoreStats::requests},
    {"kvbm_store_retries_total", "Tries after the first.", &tier::StoreStats::retries},
    {"kvbm_store_failures_total", "Tries that failed; that an object is not there is none.",
     &tier::StoreStats::failures},
    {"kvbm_store_refused_total", "Requests that were not sent, in back-off.", &tier::StoreStats::refused},
    {"kvbm_store_overdue_total", "Requests given up at their deadline.", &tier::StoreStats::overdue},
    {"kvbm_store_back_offs_total", "Times that a back-off began.", &tier::StoreStats::back_offs},
    {"kvbm_store_sent_bytes_total", "Bytes of objects that were written.", &tier::StoreStats::sent_bytes},
    {"kvbm_store_received_bytes_total", "Bytes of objects that were read.", &tier::StoreStats::received_bytes},
    {"kvbm_store_ahead_bytes_total", "Bytes of records that were read ahead.", &tier::StoreStats::ahead_bytes},
    {"kvbm_store_ahead_used_bytes_total", "Bytes read ahead that a load asked for then.",
     &tier::StoreStats::ahead_used_bytes},
    {"kvbm_store_ahead_unused_bytes_total", "Bytes read ahead that no load asked for.",
     &tier::StoreStats::ahead_unused_bytes},
};
constexpr MetricRow<tier::StoreStats> kStoreGauges[] = {
    {"kvbm_store_backs_off", "1 while the store is not asked, after failures.", &tier::StoreStats::backs_off},
    {"kvbm_store_unanswered", "Requests that were given up and that the store has not ended.",
     &tier::StoreStats::unanswered},
    {"kvbm_store_packs", "Objects with records that are known to be in the store.", &tier::StoreStats::packs},
};

constexpr const char* kOperations[] = {"store", "load", "prefetch", "offload"};

void add_tiers(const Snapshot& snapshot, MetricsRegistry& registry) {
  for (const auto& row : kTierCounters) {
    for (uint32_t t = 0; t < snapshot.n_tiers; ++t) {
      registry.counter(row.name, row.help, {{"tier", std::to_string(t)}}).add(snapshot.tiers[t].*row.value);
    }
  }
  for (const auto& row : kTierGauges) {
    for (uint32_t t = 0; t < snapshot.n_tiers; ++t) {
      registry.gauge(row.name, row.help, {{"tier", std::to_string(t)}})
          .set(static_cast<int64_t>(snapshot.tiers[t].*row.value));
    }
  }
}

void add_stores(const Snapshot& snapshot, MetricsRegistry& registry) {
  for (uint32_t t = 1; t < snapshot.n_tiers; ++t) {
    const tier::StoreStats& store = snapshot.tiers[t].store;
    if (store.is_store == 0) continue;
    for (const auto& row : kStoreCounters) {
      registry.counter(row.name, row.help, {{"tier", std::to_string(t)}}).add(store.*row.value);
    }
    for (const auto& row : kStoreGauges) {
      registry.gauge(row.name, row.help, {{"tier", std::to_string(t)}}).set(static_cast<int64_t>(store.*row.value));
    }
  }
}

void add_codecs(const Snapshot& snapshot, MetricsRegistry& registry) {
  for (uint32_t t = 1; t < snapshot.n_tiers; ++t) {
    const tier::CodecStats& codec = snapshot.tiers[t].codec;
    for (const auto& row : kCodecCounters) {
      registry.counter(row.name, row.help, {{"tier", std::to_string(t)}}).add(codec.*row.value);
    }
    registry
        .gauge("kvbm_tier_codec_mode", "Mode of what was stored last: 0 off, 1 fast, 2 default, 3 max, 4 zstd.",
               {{"tier", std::to_string(t)}})
        .set(codec.mode);
    registry
        .gauge("kvbm_tier_lossy_error_ppb",
               "Of what was coded with loss: squared differences to squared values, in billionths.",
               {{"tier", std::to_string(t)}})
        .set(codec.value > 0 ? static_cast<int64_t>(codec.difference / codec.value * 1e9) : 0);
  }
}

void add_share(const ShareState& share, MetricsRegistry& registry) {
  const ShareRole role = share.role.load(std::memory_order_acquire);
  if (role == ShareRole::off) return;
  registry.gauge("kvbm_share_owner", "1 where this process owns the shared tier set, 0 for a client.")
      .set(role == ShareRole::owner ? 1 : 0);
  registry.gauge("kvbm_share_connected", "1 while a client has an owner.").set(share.connected.load() ? 1 : 0);
  registry.gauge("kvbm_share_clients", "Processes that are connected to this owner.").set(share.clients.load());
  registry.counter("kvbm_share_takeovers_total", "Times that this process became the owner after another one.")
      .add(share.takeovers.load());
  registry.counter("kvbm_share_owners_lost_total", "Links to an owner that ended.").add(share.owners_lost.load());
  registry.counter("kvbm_share_silent_lookups_total", "Lookups that went on without the owner's answer.")
      .add(share.silent_lookups.load());
  registry.counter("kvbm_share_not_kept_total", "Blocks stored here that flushes did not find where they promise them.")
      .add(share.not_kept.load());
  if (share.pools == nullptr) return;
  registry.gauge("kvbm_share_in_place", "1 while a client reads its owner's host memory in place.")
      .set(share.pools->empty() ? 0 : 1);
  registry.counter("kvbm_share_in_place_bytes_total", "Bytes of blocks read out of an owner's host memory in place.")
      .add(share.pools->bytes());
}

constexpr MetricRow<device::TransferStats> kDeviceCounters[] = {
    {"kvbm_device_batches_total", "Batches of leaves moved between a device and host memory.",
     &device::TransferStats::batches},
    {"kvbm_device_failed_batches_total", "Batches that did not end well.", &device::TransferStats::failed_batches},
    {"kvbm_device_leaves_total", "Leaves moved.", &device::TransferStats::leaves},
    {"kvbm_device_bytes_total", "Their bytes.", &device::TransferStats::bytes},
    {"kvbm_device_bad_leaves_total", "Leaves that were not what their record says, overwritten on the device.",
     &device::TransferStats::bad_leaves},
    {"kvbm_device_mapped_leaves_total", "Leaves moved by kernels on mapped host memory.",
     &device::TransferStats::mapped_leaves},
    {"kvbm_device_staged_leaves_total", "Leaves moved by kernels through device memory.",
     &device::TransferStats::staged_leaves},
    {"kvbm_device_straight_leaves_total", "Leaves copied straight between pages and record.",
     &device::TransferStats::straight_leaves},
    {"kvbm_device_bounced_leaves_total", "Leaves whose record is not registered with the device.",
     &device::TransferStats::bounced_leaves},
    {"kvbm_device_decoded_leaves_total", "Leaves that came coded and were decoded by the device.",
     &device::TransferStats::decoded_leaves},
    {"kvbm_device_inside_leaves_total", "Leaves moved by kernels from device memory to device memory.",
     &device::TransferStats::inside_leaves},
    {"kvbm_device_nanoseconds_total", "Time on the device.", &device::TransferStats::device_ns},
};

void add_devices(const DeviceCaches& devices, MetricsRegistry& registry) {
  for (const auto& attached : devices.opened()) {
    const std::string ordinal = std::to_string(attached->device().facts().ordinal);
    const std::pair<const char*, device::TransferStats> ways[] = {{"gather", attached->transfers().gathers()},
                                                                  {"scatter", attached->transfers().scatters()}};
    for (const auto& row : kDeviceCounters) {
      for (const auto& [way, stats] : ways) {
        registry.counter(row.name, row.help, {{"device", ordinal}, {"way", way}}).add(stats.*row.value);
      }
    }
    if (const device::StorageReads* const storage = attached->storage()) {
      const device::StorageReads::Stats stats = storage->stats();
      const auto count = [&](const char* name, const char* help, uint64_t value) {
        registry.counter(name, help, {{"device", ordinal}}).add(value);
      };
      count("kvbm_device_storage_reads_total", "Records read from a disk straight into the device.", stats.reads);
      count("kvbm_device_storage_bytes_total", "Their bytes.", stats.bytes);
      count("kvbm_device_storage_failed_total", "Such reads that failed; host memory was read into instead.",
            stats.failed);
    }
    registry.gauge("kvbm_device_lost", "1 after a fault that took the device out of service.", {{"device", ordinal}})
        .set(attached->device().is_lost() ? 1 : 0);
    registry.gauge("kvbm_device_pinned_bytes", "Host memory registered with the device.", {{"device", ordinal}})
        .set(static_cast<int64_t>(attached->pinned_bytes()));
  }
}

constexpr std::array<const char*, kLoadFailures> kLoadFailureNames = {"miss",    "damaged",   "mismatch", "deadline",
                                                                      "no_room", "no_memory", "other"};

// Operations that waited for host slots, did without, or got none.
void add_room(HostTier& host, MetricsRegistry& registry) {
  const Counters& counters = host.counters();
  registry.histogram("kvbm_store_room_wait_seconds", "Waiting for room in the host, of stores that had to.")
      .merge(counters.room_wait);
  registry.histogram("kvbm_prefetch_room_wait_seconds", "Waiting for room in the host, of prefetches that had to.")
      .merge(counters.prefetch_room_wait);
  const uint64_t prefetches = host.space_queue().waiting_prefetches();
  // The two counts are read at different moments.
  const uint64_t all = std::max(host.space_queue().waiting(), prefetches);
  registry.gauge("kvbm_stores_waiting_for_room", "Stores that wait for room in the host now.")
      .set(static_cast<int64_t>(all - prefetches));
  registry.gauge("kvbm_prefetches_waiting_for_room", "Prefetches that wait for room in the host now.")
      .set(static_cast<int64_t>(prefetches));
  registry.counter("kvbm_prefetches_refused_room_total", "Blocks not prefetched because the host had no room for them.")
      .add(get(counters.prefetch_refused));
  registry.counter("kvbm_loads_past_host_total", "Blocks read past the host because it had no room for them.")
      .add(get(counters.load_staged));
  registry.gauge("kvbm_load_staging_bytes", "Memory that such blocks are in now.")
      .set(static_cast<int64_t>(host.landing_staging().used_bytes()));
  for (size_t i = 0; i < kLoadFailures; ++i) {
    registry
        .counter("kvbm_load_blocks_failed_total", "Blocks that were found and not loaded.",
                 {{"reason", kLoadFailureNames[i]}})
        .add(get(counters.load_failed[i]));
  }
}

// Tables that grow with peers' reports, and with the namespaces used here.
void add_names(const Observed& observed, MetricsRegistry& registry) {
  const Namespaces::EpochRows rows = observed.namespaces.epoch_rows();
  const char* const epochs =
      "Rows of the table of epochs (4,096): of namespaces used here, and known by other nodes' word alone.";
  registry.gauge("kvbm_epoch_rows", epochs, {{"whose", "own"}}).set(static_cast<int64_t>(rows.all - rows.foreign));
  registry.gauge("kvbm_epoch_rows", epochs, {{"whose", "peers"}}).set(static_cast<int64_t>(rows.foreign));
  const FamilyTable& families = observed.stack.host().families();
  const char* const named = "Families (65,536): used here, and named by other nodes alone.";
  const uint32_t foreign = families.foreign();
  registry.gauge("kvbm_families", named, {{"whose", "own"}}).set(int64_t{families.size()} - foreign);
  registry.gauge("kvbm_families", named, {{"whose", "peers"}}).set(foreign);
  registry.counter("kvbm_families_refused_total", "Families that other nodes named and that had no room.")
      .add(families.refused());
}

}  // namespace

std::string metrics_text(const Observed& observed) {
  HostTier& host = observed.stack.host();
  const Snapshot now = snapshot(observed);
  MetricsRegistry registry;
  for (const auto& row : kCounters) registry.counter(row.name, row.help).add(now.*row.value);
  for (const auto& row : kGauges) registry.gauge(row.name, row.help).set(static_cast<int64_t>(now.*row.value));
  add_tiers(now, registry);
  add_codecs(now, registry);
  add_stores(now, registry);
  add_share(observed.share, registry);
  add_devices(observed.devices, registry);
  add_names(observed, registry);
  registry.counter("kvbm_memory_waits_total", "Times that the library waited for memory that was refused.")
      .add(memory_waits());
  const Counters& counters = host.counters();
  registry
      .counter("kvbm_device_decoded_late_total",
               "Blocks that a device decoded for a load, decoded into the host after it.")
      .add(get(counters.decoded_late));
  registry
      .counter("kvbm_device_left_below_total", "Blocks that a device decoded for a load, and the host had no time for.")
      .add(get(counters.left_below));
  registry.histogram("kvbm_load_predicted_seconds", "Predicted time of loads that were weighed against computing.")
      .merge(counters.load_predicted);
  registry.histogram("kvbm_load_actual_seconds", "What these loads took.").merge(counters.load_actual);
  add_room(host, registry);
  for (size_t i = 0; i < counters.wait.size(); ++i) {
    registry.histogram("kvbm_operation_wait_seconds", "From submit until work began.", {{"op", kOperations[i]}})
        .merge(counters.wait[i]);
  }
  for (size_t i = 0; i < counters.service.size(); ++i) {
    registry
        .histogram("kvbm_operation_service_seconds", "From when work began until it was done.",
                   {{"op", kOperations[i]}})
        .merge(counters.service[i]);
  }
  return registry.text();
}

}  // namespace kvbm::manager
