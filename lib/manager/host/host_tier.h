// The host tier: the memory of resident blocks, their table, and what keeps a block there. It knows no other tier.
//
// What allocating, publishing and dropping blocks means for the tiers below is in tier_stack.h. Thread: any, after
// open() and recover(). Lock order: lib/README.md.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>

#include "base/family/family_table.h"
#include "block/block_table.h"
#include "block/hold_table.h"
#include "manager/common/counters.h"
#include "manager/common/environment.h"
#include "manager/common/events.h"
#include "manager/common/lifetime.h"
#include "manager/common/options.h"
#include "manager/common/slot_flags.h"
#include "manager/host/invalidations.h"
#include "manager/host/landing_staging.h"
#include "manager/host/received_blocks.h"
#include "manager/host/recovered.h"
#include "manager/host/space_queue.h"
#include "manager/host/unit_index.h"
#include "tier/host/host_arena.h"

namespace kvbm::manager {

class HostTier {
 public:
  // Everything that is passed outlives this object.
  HostTier(const Environment& environment, const Options& options, FamilyTable& families, Events& events,
           Counters& counters, const Lifetime& lifetime);

  Status open();
  // Finds the blocks that an earlier process left in a host file, if there is one (recover_host.cc).
  void recover();
  // Lets waiters end instead of waiting for slots.
  void close() noexcept { space_queue_->close(); }
  [[nodiscard]] bool closing() const noexcept { return space_queue_->closing(); }

  [[nodiscard]] const Environment& env() const noexcept { return env_; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const Lifetime& lifetime() const noexcept { return lifetime_; }
  [[nodiscard]] FamilyTable& families() noexcept { return families_; }
  [[nodiscard]] Events& events() noexcept { return events_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  [[nodiscard]] block::BlockTable& table() noexcept { return *table_; }
  [[nodiscard]] block::HoldTable& holds() noexcept { return *holds_; }
  [[nodiscard]] tier::HostArena& arena() noexcept { return *arena_; }
  // Returns the arena for writers that may outlive the manager.
  [[nodiscard]] const std::shared_ptr<tier::HostArena>& shared_arena() const noexcept { return arena_; }
  [[nodiscard]] UnitIndex& unit_index() noexcept { return *unit_index_; }
  // Memory that loads use while no slot is free.
  [[nodiscard]] LandingStaging& landing_staging() noexcept { return *landing_staging_; }
  // The space queue, where stores and prefetches wait for slots.
  [[nodiscard]] SpaceQueue& space_queue() noexcept { return *space_queue_; }
  [[nodiscard]] ReceivedBlocks& received() noexcept { return *received_; }
  [[nodiscard]] Recovered& recovered() noexcept { return recovered_; }
  [[nodiscard]] Invalidations& invalidations() noexcept { return invalidations_; }

  // Counts one more request: the unit of time of the policies.
  uint32_t next_tick() noexcept { return tick_.fetch_add(1, std::memory_order_relaxed) + 1; }
  [[nodiscard]] uint32_t tick() const noexcept { return tick_.load(std::memory_order_relaxed); }
  // Returns a new record's id: unique over managers and restarts (64 random bits, then a counter).
  std::array<uint8_t, 16> new_record_id() noexcept;
  // Returns true if a lossy record was ever in this host: only then lookups check for one.
  [[nodiscard]] bool has_lossy() const noexcept { return has_lossy_.load(std::memory_order_relaxed); }
  void note_lossy() noexcept { has_lossy_.store(true, std::memory_order_relaxed); }
  // Returns true if a record with a position was ever in this host.
  [[nodiscard]] bool has_positions() const noexcept { return has_positions_.load(std::memory_order_relaxed); }
  void note_positions() noexcept { has_positions_.store(true, std::memory_order_relaxed); }

  // ---- References to slots ----
  void release(std::span<const SlotId> slots) noexcept {
    table_->release(slots, tick());
    if (table_->underflows() != 0) [[unlikely]]
      log_underflow();
    space_queue_->space_released();
  }
  // kNoSlot: nothing is released.
  void release(SlotId slot) noexcept {
    if (slot != kNoSlot) release({&slot, 1});
  }
  // Returns the resident slot of a key, with a reference; kNoSlot if none. Not counted as a use.
  SlotId acquire_one(FamilyId family, const Key& key) noexcept;
  // Ends references and evicts the blocks that nothing else holds. Returns how many it evicted.
  size_t evict_held(std::span<const SlotId> slots);
  // Counts evicted blocks and notifies subscribers.
  void report_evicted(std::span<const block::Evicted> gone);
  // On-tier flags of all tiers but those of other nodes; set once.
  void set_own_tiers(uint8_t flags) noexcept { own_tiers_ = flags; }
  [[nodiscard]] uint8_t own_tiers() const noexcept { return own_tiers_; }
  // Takes over a reference to blocks that another node pushed: they stay for a while (received_blocks.h).
  void keep_received(std::span<const SlotId> slots);

  // ---- Bytes of slots ----
  // Marks a block for the next process to find, if the host is in a file: its head and bytes are in place. The caller
  // holds it, and has checked that it was not invalidated since its bytes were read.
  void keep_over_restart(SlotId slot) noexcept {
    if (!arena_->marks().empty()) table_->keep(slot, arena_->mark_of(slot));
  }
  // Returns true if a held slot's bytes may be used. Blocks that an earlier process left are verified once, here.
  // False: the bytes do not match the head, and the block was dropped.
  [[nodiscard]] bool trust(SlotId slot) { return !recovered_.has(slot) || check_recovered(slot); }
  // Verifies whatever blocks these keys have. Missing blocks are ignored.
  void trust_present(FamilyId family, std::span<const Key> keys);
  // Drops a block that failed verification: lookups no longer find it. Counts and reports it.
  void quarantine(SlotId slot);

 private:
  Status map_memory();
  bool check_recovered(SlotId slot);
  void expire_received_at(uint64_t when_ns);
  void log_underflow() noexcept;

  const Environment& env_;
  const Options& options_;
  FamilyTable& families_;
  Events& events_;
  Counters& counters_;
  const Lifetime& lifetime_;
  std::shared_ptr<tier::HostArena> arena_;
  std::unique_ptr<block::BlockTable> table_;
  std::unique_ptr<SpaceQueue> space_queue_;  // notified whenever slots are released
  std::unique_ptr<block::HoldTable> holds_;
  std::unique_ptr<ReceivedBlocks> received_;
  std::unique_ptr<UnitIndex> unit_index_;
  std::shared_ptr<LandingStaging> landing_staging_;
  Recovered recovered_;
  Invalidations invalidations_;
  uint8_t own_tiers_ = 0;
  std::atomic<bool> has_lossy_{false};
  std::atomic<bool> has_positions_{false};
  std::atomic<bool> underflow_logged_{false};
  std::atomic<uint32_t> tick_{0};
  const uint64_t record_base_;
  std::atomic<uint64_t> record_count_{0};
};

}  // namespace kvbm::manager
