// The manager: one set of tiers, and the only place where policy meets mechanism.
//
// It composes the block table (which blocks are resident in host memory), the host arena (their bytes), the tiers
// below and the offloaders between them. Everything here is step-driven: calls either finish at once or start an
// Operation on the environment's executor. Thread: any, unless stated otherwise. Lock order: lib/README.md.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/family_table.h"
#include "block/block_table.h"
#include "block/hold_table.h"
#include "block/pin_table.h"
#include "cluster/record_source.h"
#include "copy/cost.h"
#include "manager/accounts.h"
#include "manager/coded_landing.h"
#include "manager/counters.h"
#include "manager/environment.h"
#include "manager/epoch_table.h"
#include "manager/events.h"
#include "manager/landing_room.h"
#include "manager/namespace.h"
#include "manager/options.h"
#include "manager/recovered.h"
#include "manager/room_line.h"
#include "manager/share_state.h"
#include "manager/taken.h"
#include "manager/unit_index.h"
#include "tier/host/host_arena.h"
#include "tier/tier.h"

namespace kvbm::manager {

class CodingTerms;
class DeviceCaches;
class Newcomers;
class Offloader;

// Bits of a slot's flags (BlockTable::flags).
enum SlotFlag : uint8_t {
  kHasHead = 1,       // the head in the arena describes the payload
  kMakingHead = 2,    // a thread is hashing the payload now
  kOnTier1 = 4,       // tier i has the record: kOnTier1 << (i - 1), i <= 6
};
inline constexpr size_t kMaxTiersBelow = 6;
constexpr uint8_t on_tier_flag(TierIndex tier) noexcept { return static_cast<uint8_t>(kOnTier1 << (tier - 1)); }

class Manager final : public tier::TierListener, public std::enable_shared_from_this<Manager> {
 public:
  static Result<std::shared_ptr<Manager>> create(const Environment& environment, Options options);
  ~Manager() override;

  // Stops accepting work, finishes what is in flight and closes the tiers; `done` runs once.
  void shutdown(UniqueFunction<void()> done);
  // `done` runs when no offload is queued or in flight.
  void flush(UniqueFunction<void()> done);
  // Flushes, after it has offered blocks again that disks and plug-ins did not take. partial: some were not taken
  // since the last flush that reported so. Every flush in progress at that time reports it, or else the next one.
  // `done` returns whether the caller received the code. With `durable` the codes of sync_tiers() are possible too:
  // unsupported, or partial.
  void flush_and_tell(bool durable, UniqueFunction<bool(Code)> done);
  // Makes the records of tiers that store them durable. `done` runs once: ok; unsupported if one tier cannot promise
  // durability, or no tier stores records; partial if some records could not be made durable. Those have left their
  // tier, and the next flush offers them again.
  void sync_tiers(UniqueFunction<void(Code)> done);

  // ---- Namespaces ----
  Result<std::shared_ptr<Namespace>> open_namespace(NamespaceOptions options);
  Status invalidate(Namespace& ns);
  // Sets the epoch of `base_id` to `wanted`, or to the next one if `wanted` is 0. No-op if it is there already.
  // Persisted on return.
  Status raise_epoch(const NamespaceId& base_id, uint64_t wanted);
  // Merges epochs that peers report. One task of the executor at a time writes them. `done` runs there, or inside the
  // call with Code::again for all words if kHeardWaiting calls are queued already. `may_add`: new rows allowed for
  // namespaces that no process here ever used. `trusted`: the words are from clients of this tier set, and count as
  // this process's own.
  static constexpr size_t kHeardWaiting = 256;
  void hear_epochs(std::vector<cluster::EpochWord> words, uint32_t may_add, bool trusted,
                   UniqueFunction<void(std::vector<cluster::EpochWord>)> done);
  // Merges the epochs stored in a tier that has come into use.
  void adopt_epochs(tier::Tier& from);
  Status reset(Namespace& ns);
  Status reset_all();
  Status set_quota(Namespace& ns, uint64_t bytes, block::OverQuota mode);

  // ---- Slots ----
  //
  // Allocates host slots for blocks of an account, all or none; evictions are reported and counted. `evicted` (may be
  // null) receives the evicted identities. Without `evicting` takes only free slots, within the account's present
  // limit.
  Code allocate(block::AccountId account, std::span<SlotId> out, std::vector<block::Evicted>* evicted,
                bool evicting = true);
  // Returns how many of `n` slots can be filled from below without losing a last copy. If a tier gets only blocks
  // that the host evicts, these are the free slots: the blocks in other slots must be written there first.
  [[nodiscard]] size_t slots_to_land_in(size_t n);
  // Returns true if a tier in use gets only blocks that the host evicts. A store that must lose nothing then
  // allocates without evicting.
  [[nodiscard]] bool host_has_last_copies() const noexcept;
  // Returns how many of `n` slots a store can fill now without losing a last copy; the store waits for more. If there
  // are none, `why` has the reason.
  [[nodiscard]] size_t slots_to_store_in(block::AccountId account, size_t n, Code& why);
  // Sends a held block to the tiers that would get it at its eviction.
  void write_back(SlotId slot);
  // Returns true if no tier has the block. False if that is not known, because other processes or nodes own a tier
  // below.
  [[nodiscard]] bool is_nowhere(const Identity& id);
  // Allocates as many leading slots as possible; `got` is their number. ok, or why there was none.
  Code allocate_leading(block::AccountId account, std::span<SlotId> out, size_t& got, bool evicting = true);
  // Publishes completed slots, and notifies event subscribers and offloaders. `parents_of_events` may be empty.
  // `newcomers`: what.precedence, which then knows the replaced blocks.
  struct Bringer {
    TierIndex apart = kNoTier;  // a tier that the caller sends the blocks to itself
    bool waits = false;         // the caller waits for slots, so blocks to be offloaded stay until they are written
  };
  Code publish(std::span<SlotId> inout, const block::Publication& what, std::span<const Key> parents_of_events,
               std::span<Code> codes, const Bringer& bringer, const Newcomers* newcomers = nullptr);
  Code publish(std::span<SlotId> inout, const block::Publication& what, std::span<const Key> parents_of_events,
               std::span<Code> codes) {
    return publish(inout, what, parents_of_events, codes, Bringer{});
  }
  void release(std::span<const SlotId> slots) noexcept {
    table_->release(slots, tick());
    if (table_->underflows() != 0) [[unlikely]] tell_underflow();
    room_.room_came();
  }
  // Takes over a reference to blocks that another node pushed: they stay for a while (taken.h).
  void keep_taken(std::span<const SlotId> slots);
  [[nodiscard]] TakenBlocks& taken() noexcept { return *taken_; }
  // Ends references and evicts the blocks that nothing else holds. Returns how many it evicted.
  size_t evict_held(std::span<const SlotId> slots);
  // Returns the resident slot of a key, with a reference; kNoSlot if none. Not counted as a use.
  SlotId acquire_one(FamilyId family, const Key& key) noexcept;
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
  // Rejects a record from `location` of a tier below that failed verification: the tier drops it.
  void reject(TierIndex tier, const Identity& id, uint64_t location);

  // ---- Residency control ----
  size_t drop(FamilyId family, std::span<const Key> keys);
  // Blocks that are read from a tier while their family is invalidated must not stay in the host. The reader takes a
  // mark before it asks the tier, and calls forgotten_since() after it has published the blocks.
  static constexpr uint64_t kForgetting = UINT64_MAX;
  [[nodiscard]] uint64_t forget_mark(FamilyId family) const noexcept;
  [[nodiscard]] bool forgotten_since(FamilyId family, uint64_t mark) const noexcept;
  void hint(FamilyId family, std::span<const Key> keys, uint8_t priority);
  // takes_lossy: as NamespaceOptions::allow_lossy.
  Code pin(FamilyId family, std::span<const Key> keys, uint64_t owner, uint64_t deadline_ns, block::PinId& id,
           size_t& count, bool takes_lossy = true);
  Code unpin(block::PinId id);
  size_t unpin_owner(uint64_t owner);

  // ---- Parts, for operations of this layer ----
  [[nodiscard]] const Environment& env() const noexcept { return env_; }
  [[nodiscard]] block::BlockTable& table() noexcept { return *table_; }
  [[nodiscard]] block::HoldTable& holds() noexcept { return *holds_; }
  [[nodiscard]] tier::HostArena& arena() noexcept { return *arena_; }
  // Returns the arena for writers that may outlive the manager.
  [[nodiscard]] const std::shared_ptr<tier::HostArena>& shared_arena() const noexcept { return arena_; }
  [[nodiscard]] DeviceCaches& devices() noexcept { return *devices_; }
  [[nodiscard]] FamilyTable& families() noexcept { return families_; }
  [[nodiscard]] UnitIndex& unit_index() noexcept { return *unit_index_; }
  [[nodiscard]] LateDecoder& late_decoder() noexcept { return late_decoder_; }
  [[nodiscard]] Events& events() noexcept { return events_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  // Tiers below the host; index 1 is the first.
  [[nodiscard]] size_t tiers_below() const noexcept { return tiers_.size(); }
  [[nodiscard]] tier::Tier& tier_below(TierIndex index) noexcept { return *tiers_[index - 1U]; }
  [[nodiscard]] bool disabled(TierIndex index) const noexcept {
    return (disabled_.load(std::memory_order_relaxed) >> index & 1U) != 0;
  }
  // Cost of reading blocks from a tier; 0: of copying out of the host.
  [[nodiscard]] copy::SourceCost& cost(TierIndex index) noexcept { return costs_[index]; }
  // Coding parameters of families (coding_terms.h), the keys that seal records leaving the host (null: nothing is
  // sealed), and the cost of reading a tier without decoding.
  [[nodiscard]] const std::shared_ptr<CodingTerms>& coding_terms() const noexcept { return coding_terms_; }
  [[nodiscard]] const std::shared_ptr<const codec::KeyRing>& seal_keys() const noexcept { return options_.seal_keys; }
  [[nodiscard]] copy::SourceCost& link_cost(TierIndex index) noexcept { return link_costs_[index]; }
  // Returns true if a lossy record was ever in this host: only then lookups check for one.
  [[nodiscard]] bool has_lossy() const noexcept { return has_lossy_.load(std::memory_order_relaxed); }
  void note_lossy() noexcept { has_lossy_.store(true, std::memory_order_relaxed); }
  // Returns true if a record with a position was ever in this host.
  [[nodiscard]] bool has_positions() const noexcept { return has_positions_.load(std::memory_order_relaxed); }
  void note_positions() noexcept { has_positions_.store(true, std::memory_order_relaxed); }
  // ---- A shared tier set (share.h) ----
  [[nodiscard]] ShareState& share() noexcept { return share_; }
  // A tier on standby is neither searched nor written to; an operation that names it can still use it.
  [[nodiscard]] bool stands_by(TierIndex index) const noexcept {
    return (standing_by_.load(std::memory_order_acquire) >> index & 1U) != 0;
  }
  [[nodiscard]] bool out_of_use(TierIndex index) const noexcept { return disabled(index) || stands_by(index); }
  void stand_by(TierIndex index, bool yes) noexcept {
    if (yes) {
      standing_by_.fetch_or(1U << index, std::memory_order_acq_rel);
    } else {
      standing_by_.fetch_and(~(1U << index), std::memory_order_acq_rel);
    }
    note_tiers_in_use();
  }
  // Returns the tier that must have a store's blocks before the store completes; kNoTier: the host is enough.
  [[nodiscard]] TierIndex stores_reach() const noexcept { return stores_reach_.load(std::memory_order_acquire); }
  void let_stores_reach(TierIndex index) noexcept { stores_reach_.store(index, std::memory_order_release); }
  // ---- Tier to tier (take_over.cc) ----
  // True if this tier gets all blocks that the host evicts through a tier above it, which has them first.
  [[nodiscard]] bool is_fed(TierIndex index) const noexcept;
  // Returns the on-tier flags of tiers above that pass their evicted records to this tier.
  [[nodiscard]] uint8_t flags_of_feeders(TierIndex index) const noexcept;
  // Returns the on-tier flags of tiers below that took over records from this tier.
  [[nodiscard]] uint8_t flags_of_fed(TierIndex index) const noexcept;
  // Offers all host blocks to a tier that came into use, or that returned with unknown contents.
  void offer_all(TierIndex index);
  // Offers the host blocks that the tier is not known to have.
  void offer_missing(TierIndex index);
  // Adds the families that have records in the host, or in a tier that can list them. Visits every slot.
  void add_stored(FamilyTable::Named& named);
  // Asks every owner of family ids which ids it uses, and frees those that were unused twice in a row. The caller
  // holds no lock.
  void give_back_families();
  // Forgets a family in the host and in every tier below.
  Status forget_family(FamilyId family);
  // Returns the epoch of a namespace as far as it is known here.
  Result<uint64_t> epoch_of(const NamespaceId& base_id);
  // Returns namespaces at another epoch than the one they began with, here or in an earlier process. This process's
  // own are first, and the most recently raised first. Then follow open namespaces without a row, at epoch 0, which
  // asks each peer for a later one: a peer that has dropped its row (EpochTable) reports it only when asked.
  std::vector<NamespaceEpoch> epochs();
  struct EpochRows {
    size_t all = 0, foreign = 0;
  };
  EpochRows epoch_rows();
  // Returns namespaces that have a handle, or had one a while ago.
  std::vector<NamespaceId> known_namespaces();
  [[nodiscard]] Offloader& offloader(TierIndex index) noexcept { return *offloaders_[index - 1U]; }
  // Returns the number of blocks that offloads hold in the host.
  [[nodiscard]] uint64_t offloading_blocks() const;
  // Memory that loads use while the host has no free slot.
  [[nodiscard]] LandingStaging& landing_staging() noexcept { return *landing_staging_; }
  // Drops queued offloads to free slots for `blocks` that are read up: a block that is only queued need not stay.
  void yield_offloads(size_t blocks);
  // The space queue, where stores and prefetches wait for host slots.
  [[nodiscard]] RoomLine& room() noexcept { return room_; }
  // Counts one more request: the unit of time of the policies.
  uint32_t next_tick() noexcept { return tick_.fetch_add(1, std::memory_order_relaxed) + 1; }
  [[nodiscard]] uint32_t tick() const noexcept { return tick_.load(std::memory_order_relaxed); }
  // Returns a new record's id: unique over managers and restarts (64 random bits, then a counter).
  std::array<uint8_t, 16> new_record_id() noexcept;
  // Reports hits that offloaders may act on.
  void used(std::span<const SlotId> slots);
  [[nodiscard]] bool hears_uses() const noexcept { return hears_uses_; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] size_t pins() const { return pins_->size(); }
  [[nodiscard]] bool closing() const noexcept { return closing_.load(std::memory_order_acquire); }

  // tier::TierListener
  void epoch_raised(TierIndex tier, const NamespaceEpoch& row) override;
  void removed(TierIndex tier, std::span<const Identity> ids, bool damaged) override;
  void disabled(TierIndex tier, const Status& why) override;
  void warns(TierIndex tier, const Status& why) override;
  void wanted(TierIndex tier, std::vector<Identity>& ids) override;
  void take_over(TierIndex tier, std::unique_ptr<tier::PutBatch> batch) override;

 private:
  // takes_over(): whether this tier accepts records that other tiers evict. feeds(): whether it passes its own on.
  [[nodiscard]] bool takes_over(TierIndex index) const noexcept;
  [[nodiscard]] bool feeds(TierIndex index) const noexcept;
  // Returns the tier that takes over records evicted from `from`; kNoTier.
  [[nodiscard]] TierIndex next_below(TierIndex from) const noexcept;
  [[nodiscard]] bool closes_after_above(size_t i) const noexcept;
  void close_tier(size_t i);
  void part_closed();
  Manager(const Environment& environment, Options options);
  Status open_host();
  Status open_tiers();
  void recover_host();  // recover_host.cc
  bool check_recovered(SlotId slot);
  void watch_families();
  // ---- manager_epochs.cc ----
  struct KnownNamespace;
  struct Heard {
    std::vector<cluster::EpochWord> words;
    uint32_t may_add = 0;
    bool trusted = false;
    UniqueFunction<void(std::vector<cluster::EpochWord>)> done;
  };
  Result<uint64_t> epoch_in_tiers(const NamespaceId& base_id);
  void drop_unused_namespaces() KVBM_REQUIRES(namespaces_mutex_);
  std::vector<std::shared_ptr<Namespace>> live_handles(const NamespaceId& base_id) KVBM_REQUIRES(namespaces_mutex_);
  uint64_t epoch_here(const NamespaceId& base_id) KVBM_REQUIRES(namespaces_mutex_);
  uint64_t epoch_to_open(const NamespaceId& base_id) KVBM_REQUIRES(namespaces_mutex_);
  enum class Speaker : uint8_t { self, client, peer };
  Status raise_epochs(std::span<cluster::EpochWord> words, uint32_t may_add, Speaker speaker);
  void plan_epoch(EpochTable::Plan& plan, cluster::EpochWord& word, uint32_t& may_add, Speaker speaker,
                  EpochTable::Needed& needed) KVBM_REQUIRES(raising_, namespaces_mutex_);
  struct RowCensus;
  std::shared_ptr<const RowCensus> take_row_census(size_t words) KVBM_REQUIRES(raising_) KVBM_EXCLUDES(namespaces_mutex_);
  EpochTable::Need need_of_row(const RowCensus& census, const NamespaceId& base) KVBM_REQUIRES(namespaces_mutex_);
  void adopt_epochs();
  void tell_epoch(const NamespaceId& base_id, uint64_t epoch);
  void run_heard();
  void offer(TierIndex index, uint8_t forgotten);
  [[nodiscard]] uint64_t not_taken();
  // Recomputes which tiers count as holding a copy: blocks in one of them may be evicted before the blocks that
  // follow.
  void note_tiers_in_use() noexcept;
  void tell_evicted(std::span<const block::Evicted> gone);
  void tell_underflow() noexcept;
  // Reports blocks evicted to make space, whether a tier below has them or not.
  void tell_lost(std::span<const block::Evicted> gone);
  void forget_others(const block::Publication& what, const Newcomers& newcomers, std::span<const Code> codes);
  // Invalidation counters, each shared by several families. Sharing can cause an extra miss, never a stale block.
  struct Forgets {
    std::atomic<uint64_t> begun{0};
    std::atomic<uint64_t> ended{0};
  };
  static constexpr size_t kForgets = 64;
  class Forgetting;  // begins and ends the invalidation of one family, or of all
  void arm_pins(uint64_t deadline_ns);
  void expire_pins();
  void expire_taken_at(uint64_t when_ns);

  const Environment env_;
  const Options options_;
  FamilyTable families_;
  Events events_;
  Counters counters_;
  RoomLine room_{*this};  // notified whenever slots are released
  std::shared_ptr<tier::HostArena> arena_;
  std::unique_ptr<DeviceCaches> devices_;  // registers memory of arena_, so it is destroyed first
  std::unique_ptr<block::BlockTable> table_;
  std::unique_ptr<block::HoldTable> holds_;
  std::unique_ptr<block::PinTable> pins_;
  std::unique_ptr<TakenBlocks> taken_;
  uint8_t own_tiers_ = 0;  // on-tier flags of all tiers but peer tiers
  std::unique_ptr<UnitIndex> unit_index_;
  Recovered recovered_;
  LateDecoder late_decoder_;
  std::unique_ptr<LandingStaging> landing_staging_;
  std::vector<std::unique_ptr<tier::Tier>> tiers_;
  std::vector<std::unique_ptr<Offloader>> offloaders_;
  std::array<copy::SourceCost, kMaxTiersBelow + 1> costs_;
  std::array<copy::SourceCost, kMaxTiersBelow + 1> link_costs_;
  const std::shared_ptr<CodingTerms> coding_terms_;
  std::atomic<bool> has_lossy_{false};
  std::atomic<bool> has_positions_{false};
  bool hears_uses_ = false;
  std::atomic<uint32_t> tick_{0};
  std::atomic<uint32_t> disabled_{0};  // bit i: tier i is out of service
  std::atomic<uint32_t> standing_by_{0};  // bit i: tier i
  std::atomic<TierIndex> stores_reach_{kNoTier};
  ShareState share_;
  std::atomic<bool> underflow_told_{false};
  std::atomic<bool> opened_{false};  // tiers_ and offloaders_ are complete
  std::atomic<bool> sync_failed_{false};  // true until blocks have been offered again
  std::atomic<uint64_t> not_taken_told_{0};  // the part of not_taken() that flushes have reported
  std::atomic<bool> closing_{false};
  // State of shutdown(), which allocates nothing: its caller could not handle a refused allocation.
  std::atomic<size_t> closing_parts_{0};
  UniqueFunction<void()> closed_;
  std::array<Forgets, kForgets> forgets_;
  uint64_t record_base_ = 0;
  std::atomic<uint64_t> record_count_{0};
  // Shared, because namespaces return their accounts and may outlive the manager.
  const std::shared_ptr<Accounts> accounts_ = std::make_shared<Accounts>();
  // State that all handles of one namespace share, by base id, as long as there is a handle.
  struct KnownNamespace {
    std::weak_ptr<const Accounts::Lease> account;  // alive while a handle is open
    std::vector<std::weak_ptr<Namespace>> handles;
  };
  // Returns the account that has the limit now; null if the namespace needs none of its own.
  Result<std::shared_ptr<const Accounts::Lease>> limit_account(const NamespaceId& base_id, KnownNamespace& known,
                                                               uint64_t bytes, block::OverQuota mode)
      KVBM_REQUIRES(namespaces_mutex_);
  Status erase_families_of(const NamespaceId& id);
  Mutex giving_back_;  // serializes give_back_families()
  // Held while an epoch is written into the tiers; only raises take it. Taken before namespaces_mutex_.
  Mutex raising_;
  // Held over the table's limits (lib/README.md); never over I/O or a wait, never on a path of blocks.
  Mutex namespaces_mutex_;
  std::map<NamespaceId, KnownNamespace> known_ KVBM_GUARDED_BY(namespaces_mutex_);
  size_t known_after_sweep_ KVBM_GUARDED_BY(namespaces_mutex_) = 0;
  EpochTable epochs_ KVBM_GUARDED_BY(namespaces_mutex_);  // epochs that have ended stay ended
  Mutex heard_mutex_;
  std::deque<Heard> heard_ KVBM_GUARDED_BY(heard_mutex_);
  bool hearing_ KVBM_GUARDED_BY(heard_mutex_) = false;  // a task is running
  std::atomic<uint64_t> armed_ns_{kNever};  // the pin timer that is set
};

}  // namespace kvbm::manager
