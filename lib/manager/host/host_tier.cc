#include "manager/host/host_tier.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/thread/memory_wait.h"
#include "codec/record/record.h"
#include "policy/eviction.h"

namespace kvbm::manager {

namespace {

// Tags tell the holds of one manager from those of another; with more than 255 managers in a process they repeat.
uint8_t next_tag() noexcept {
  static std::atomic<uint32_t> count{0};
  return static_cast<uint8_t>(count.fetch_add(1, std::memory_order_relaxed) % 255 + 1);
}

}  // namespace

HostTier::HostTier(const Environment& environment, const Options& options, FamilyTable& families, Events& events,
                   Counters& counters, const Lifetime& lifetime)
    : env_(environment),
      options_(options),
      families_(families),
      events_(events),
      counters_(counters),
      lifetime_(lifetime),
      record_base_(environment.random->next()) {}

Status HostTier::map_memory() {
  tier::HostOptions host = options_.host;
  auto arena = tier::HostArena::create(host);
  if (!arena.ok() && arena.status().code() == Code::in_use && options_.share.on) {
    // Processes of a shared set have one configuration but a host tier each: only one of them can have the file.
    env_.log->write(LogLevel::warning, "manager", "the host tier is kept in memory: " + arena.status().message());
    host.file.clear();
    host.shared = true;
    arena = tier::HostArena::create(host);
  }
  if (!arena.ok() && host.shared) {
    env_.log->write(LogLevel::warning, "manager",
                    "the host memory cannot be shared with other processes: " + arena.status().message());
    host.shared = false;
    arena = tier::HostArena::create(host);
  }
  if (!arena.ok()) return arena.status();
  arena_ = std::move(arena).value();
  return {};
}

Status HostTier::open() {
  if (Status mapped = map_memory(); !mapped.ok()) return mapped;
  block::BlockTable::Options table;
  table.slots = arena_->slots();
  table.policy = options_.policy;
  table.make = options_.make_policy ? options_.make_policy : &policy::make_eviction_policy;
  table.marks = arena_->marks();
  auto blocks = block::BlockTable::create(table);
  if (!blocks.ok()) return blocks.status();
  table_ = std::move(blocks).value();
  space_queue_ = std::make_unique<SpaceQueue>(env_, options_.room_wait_ns, counters_, lifetime_, *table_);

  block::HoldTable::Options holds;
  holds.tag = next_tag();
  // Two holds for every slot, plus weak holds: far more than an engine keeps.
  holds.max_holds = static_cast<uint32_t>(std::min<uint64_t>(arena_->slots() * 4ULL + 65536, 1U << 28));
  holds_ = std::make_unique<block::HoldTable>(holds);
  received_ = std::make_unique<ReceivedBlocks>(*table_, [this](SlotId slot) {
    const auto head = codec::HeadView::parse(arena_->head(slot));
    return head.ok() ? head.value().header().parent : Key{};
  });
  landing_staging_ = std::make_shared<LandingStaging>(LandingStaging::limit_for(arena_->capacity_bytes()),
                                                      arena_->payload(0).size(), options_.host.huge_pages);
  // Offloaded blocks are found by their units too, while this table of some thousand entries remembers them.
  unit_index_ = std::make_unique<UnitIndex>(std::max<size_t>(size_t{arena_->slots()} * 4, 16384));
  return {};
}

std::array<uint8_t, 16> HostTier::new_record_id() noexcept {
  std::array<uint8_t, 16> id;
  const uint64_t count = record_count_.fetch_add(1, std::memory_order_relaxed);
  std::memcpy(id.data(), &record_base_, sizeof record_base_);
  std::memcpy(id.data() + 8, &count, sizeof count);
  return id;
}

// ---- References to slots ----

SlotId HostTier::acquire_one(FamilyId family, const Key& key) noexcept {
  SlotId slot = kNoSlot;
  table_->acquire_each(family, {&key, 1}, {&slot, 1}, block::kNoUse);
  return slot;
}

void HostTier::report_evicted(std::span<const block::Evicted> gone) {
  add(counters_.tiers[0].evictions, gone.size());
  received_->evicted(gone, own_tiers_);
  if (!events_.wanted()) return;
  std::vector<Identity> ids;
  ids.reserve(gone.size());
  for (const block::Evicted& one : gone) ids.push_back(one.identity);
  events_.publish(copy::EventKind::removed, 0, ids);
}

size_t HostTier::evict_held(std::span<const SlotId> slots) {
  if (slots.empty()) return 0;
  std::vector<block::Evicted> gone;
  const MemoryWait counted;
  const size_t count = table_->evict_held(slots, &gone, tick());
  report_evicted(gone);
  space_queue_->space_released();
  return count;
}

void HostTier::keep_received(std::span<const SlotId> slots) {
  const uint64_t now = env_.clock().now_ns();
  if (received_->keep(slots, now, tick())) expire_received_at(now + ReceivedBlocks::kKeptNs);
}

void HostTier::expire_received_at(uint64_t when_ns) {
  env_.executor->post_at(when_ns, [this, weak = lifetime_.watch()] {
    const auto alive = weak.lock();
    if (alive == nullptr) return;
    const uint64_t next = received_->expire(env_.clock().now_ns(), tick());
    space_queue_->space_released();
    if (next != kNever) expire_received_at(next);
  });
}

void HostTier::log_underflow() noexcept {
  if (underflow_logged_.exchange(true, std::memory_order_relaxed)) return;
  const MemoryWait logged;
  env_.log->write(
      LogLevel::error, "manager",
      "a reference to a host block was released that nothing held, which was refused: a fault of kvbm, or of "
      "what writes to its memory; please report it (kvbm_reference_underflows_total counts them)");
}

// ---- Bytes of slots ----

void HostTier::quarantine(SlotId slot) {
  // The block is dropped and counted already; another block has its key now.
  if (table_->info(slot).withdrawn) return;
  add(counters_.verify_failures, 1);
  add(counters_.tiers[0].damaged, 1);
  if (table_->state(slot) != block::SlotState::registered) return;  // no lookup can find it
  const Identity id = table_->identity(slot);
  table_->erase(id.family, {&id.key, 1});
  events_.publish(copy::EventKind::removed, 0, {&id, 1});
  env_.log->write(LogLevel::error, "manager", "a host block failed verification and was dropped");
}

}  // namespace kvbm::manager
