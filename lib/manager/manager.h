// The manager: one set of tiers, and the only place where policy meets mechanism.
//
// It composes the block table (who is resident in host memory), the host arena (their bytes), the
// tiers below and the offloaders between them. Everything here is step-driven: calls either finish
// at once or start an Operation on the environment's executor. Thread: any, unless said otherwise.
// Lock order: lib/README.md.
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
  kMakingHead = 2,    // someone is hashing the payload right now
  kOnTier1 = 4,       // tier i has the record: kOnTier1 << (i - 1), i <= 6
};
inline constexpr size_t kMaxTiersBelow = 6;
constexpr uint8_t on_tier_flag(TierIndex tier) noexcept { return static_cast<uint8_t>(kOnTier1 << (tier - 1)); }

class Manager final : public tier::TierListener, public std::enable_shared_from_this<Manager> {
 public:
  static Result<std::shared_ptr<Manager>> create(const Environment& environment, Options options);
  ~Manager() override;

  // Stops taking work, lets what is in flight finish and closes the tiers; `done` runs once.
  void shutdown(UniqueFunction<void()> done);
  // `done` runs when no offload is queued or in flight.
  void flush(UniqueFunction<void()> done);
  // The same, and what disks and plug-ins did not take is sent once more before. partial: they did not take something since
  // the last flush that said so: told by every flush that was under way then, or by the next.
  // `done` says whether anybody heard it.
  // With `durable` also what sync_tiers() says: unsupported, or partial.
  void flush_and_tell(bool durable, UniqueFunction<bool(Code)> done);
  // Makes durable what the tiers that keep records have. `done` runs once: ok; unsupported if one of them cannot promise
  // that, or there is none; partial if some could not be made so and has left its tier: the next flush offers it again.
  void sync_tiers(UniqueFunction<void(Code)> done);

  // ---- Namespaces ----
  Result<std::shared_ptr<Namespace>> open_namespace(NamespaceOptions options);
  Status invalidate(Namespace& ns);
  // The same by base id: to the next epoch (0), or to `wanted` unless it is there already. Persisted when it returns.
  Status raise_epoch(const NamespaceId& base_id, uint64_t wanted);
  // What peers say of epochs. Written down by one task of the executor at a time, whoever says it; `done` runs there, or
  // inside the call with Code::again for all of them where kHeardWaiting calls wait already. `may_add`: rows of namespaces
  // that no process here ever used. trusted: clients of this tier set; their word is this process's.
  static constexpr size_t kHeardWaiting = 256;
  void hear_epochs(std::vector<cluster::EpochWord> words, uint32_t may_add, bool trusted,
                   UniqueFunction<void(std::vector<cluster::EpochWord>)> done);
  // What a tier that has come into use has written down.
  void adopt_epochs(tier::Tier& from);
  Status reset(Namespace& ns);
  Status reset_all();
  Status set_quota(Namespace& ns, uint64_t bytes, block::OverQuota mode);

  // ---- Slots ----
  // Host slots for blocks of an account, all or none; evictions are reported and counted. In
  // `evicted` (may be null) are the identities that went.
  // Without `evicting` only those that are free, within the account's limit as it is.
  Code allocate(block::AccountId account, std::span<SlotId> out, std::vector<block::Evicted>* evicted,
                bool evicting = true);
  // Of `n` slots that records from below are to land in, so many as lose nothing: where a tier gets only what leaves the
  // host, the free ones, for the others have to be written there first.
  [[nodiscard]] size_t slots_to_land_in(size_t n);
  // Whether it is so: a store that must lose nothing then allocates without evicting.
  [[nodiscard]] bool host_has_last_copies() const noexcept;
  // The same of `n` slots that blocks of a store are to go into, for which it waits. None: `why`.
  [[nodiscard]] size_t slots_to_store_in(block::AccountId account, size_t n, Code& why);
  // Sends a held block to the tiers that would get it when it left the host.
  void write_back(SlotId slot);
  // Whether a block can be found nowhere: false where that is not known, because others have what is below.
  [[nodiscard]] bool is_nowhere(const Identity& id);
  // For as many leading ones as there is room for: how many comes out in `got`. ok, or why there is room for none.
  Code allocate_leading(block::AccountId account, std::span<SlotId> out, size_t& got, bool evicting = true);
  // Publishes completed slots, tells events and offloaders. `parents_of_events` may be empty. `newcomers`: what.precedence,
  // which knows then what gave way.
  struct Bringer {
    TierIndex apart = kNoTier;  // a tier that the caller sends them to itself
    bool waits = false;         // for room: what is to go down stays until it is there
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
  // Takes over a reference of blocks that another node gave: they stay for a while (taken.h).
  void keep_taken(std::span<const SlotId> slots);
  [[nodiscard]] TakenBlocks& taken() noexcept { return *taken_; }
  // Ends references and evicts what nothing else keeps. How many went.
  size_t evict_held(std::span<const SlotId> slots);
  // The resident slot of a key, with a reference; kNoSlot. Not counted as a use.
  SlotId acquire_one(FamilyId family, const Key& key) noexcept;
  // The next process may find this block, if the host is in a file: its head and bytes are in place. The caller holds it,
  // and has seen that it was not forgotten since its bytes came.
  void keep_over_restart(SlotId slot) noexcept {
    if (!arena_->marks().empty()) table_->keep(slot, arena_->mark_of(slot));
  }
  // Whether a held slot's bytes may be relied on unseen: those that an earlier process left are checked once, here. False:
  // they are not what its head says, and the block was dropped.
  [[nodiscard]] bool trust(SlotId slot) { return !recovered_.has(slot) || check_recovered(slot); }
  // The same for whatever lies under these keys. A block that is not there any more is no matter.
  void trust_present(FamilyId family, std::span<const Key> keys);
  // The slot's bytes failed verification: it vanishes from lookups, counted and told.
  void quarantine(SlotId slot);
  // The same for bytes that came from `location` of a tier below.
  void reject(TierIndex tier, const Identity& id, uint64_t location);

  // ---- Care ----
  size_t drop(FamilyId family, std::span<const Key> keys);
  // What is on its way up from a tier while its family is being forgotten must not come back to stay: whoever brings
  // blocks up takes a mark before it asks the tier, and asks again after it has published them.
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
  // For what may write to it after this has gone.
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
  // What bringing blocks up from a tier takes; 0: copying out of the host.
  [[nodiscard]] copy::SourceCost& cost(TierIndex index) noexcept { return costs_[index]; }
  // What coding must know of families (coding_terms.h), the keys that seal what leaves the host (null: nothing is
  // sealed), and what reading a tier takes without decoding.
  [[nodiscard]] const std::shared_ptr<CodingTerms>& coding_terms() const noexcept { return coding_terms_; }
  [[nodiscard]] const std::shared_ptr<const codec::KeyRing>& seal_keys() const noexcept { return options_.seal_keys; }
  [[nodiscard]] copy::SourceCost& link_cost(TierIndex index) noexcept { return link_costs_[index]; }
  // Whether any lossy record ever came into this host: only then lookups ask for it.
  [[nodiscard]] bool has_lossy() const noexcept { return has_lossy_.load(std::memory_order_relaxed); }
  void note_lossy() noexcept { has_lossy_.store(true, std::memory_order_relaxed); }
  // The same of records that have a position.
  [[nodiscard]] bool has_positions() const noexcept { return has_positions_.load(std::memory_order_relaxed); }
  void note_positions() noexcept { has_positions_.store(true, std::memory_order_relaxed); }
  // ---- A shared tier set (share.h) ----
  [[nodiscard]] ShareState& share() noexcept { return share_; }
  // A tier that stands by is not looked into and nothing is sent to it; whoever names it can still use it.
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
  // The tier that must have a store's blocks before the store is over; kNoTier: the host is enough.
  [[nodiscard]] TierIndex stores_reach() const noexcept { return stores_reach_.load(std::memory_order_acquire); }
  void let_stores_reach(TierIndex index) noexcept { stores_reach_.store(index, std::memory_order_release); }
  // ---- Tier to tier (take_over.cc) ----
  // Whether all that the host lets go comes to this tier out of one above it, that has it first.
  [[nodiscard]] bool is_fed(TierIndex index) const noexcept;
  // Flags of slots whose record this tier gets when a tier above it lets it go.
  [[nodiscard]] uint8_t flags_of_feeders(TierIndex index) const noexcept;
  // Flags of slots whose record went on from this tier to one below it.
  [[nodiscard]] uint8_t flags_of_fed(TierIndex index) const noexcept;
  // Sends what the host has to a tier that came into use, or came back with nothing known of it.
  void offer_all(TierIndex index);
  // The same of what it is not known to have.
  void offer_missing(TierIndex index);
  // Families that the host, or a tier that can say so, has records of. Looks at every slot.
  void add_stored(FamilyTable::Named& named);
  // Asks everything that keeps ids of families which of them it has, and gives back those that nothing had twice in a row. The
  // caller holds no lock.
  void give_back_families();
  // Forgets a family in the host and in every tier below.
  Status forget_family(FamilyId family);
  // The epoch of a namespace, as far as it is known here; and all that are.
  Result<uint64_t> epoch_of(const NamespaceId& base_id);
  // Those that have come to another epoch than the one they began with, here or in an earlier process: this process's own
  // first, those that were raised last before others; then those that are open and have no row, at epoch 0, which asks every peer that hears
  // it for a later one: his row may have gone (EpochTable).
  std::vector<NamespaceEpoch> epochs();
  struct EpochRows {
    size_t all = 0, foreign = 0;
  };
  EpochRows epoch_rows();
  // Those that have a handle, or had one a while ago.
  std::vector<NamespaceId> known_namespaces();
  [[nodiscard]] Offloader& offloader(TierIndex index) noexcept { return *offloaders_[index - 1U]; }
  // Blocks that offloads keep in the host.
  [[nodiscard]] uint64_t offloading_blocks() const;
  // Memory that loads take where the host has no slot.
  [[nodiscard]] LandingStaging& landing_staging() noexcept { return *landing_staging_; }
  // What offloads only queue need not stay in the host: some is wanted for `blocks` that come up.
  void yield_offloads(size_t blocks);
  // Where stores and prefetches wait that found no room.
  [[nodiscard]] RoomLine& room() noexcept { return room_; }
  // One more request began: the unit of time of the policies.
  uint32_t next_tick() noexcept { return tick_.fetch_add(1, std::memory_order_relaxed) + 1; }
  [[nodiscard]] uint32_t tick() const noexcept { return tick_.load(std::memory_order_relaxed); }
  // A new record's id: unique over managers and restarts (64 random bits, then a counter).
  std::array<uint8_t, 16> new_record_id() noexcept;
  // Hits that offloaders may act on.
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
  // Whether records that tiers let go can come to this one, and whether it can give any.
  [[nodiscard]] bool takes_over(TierIndex index) const noexcept;
  [[nodiscard]] bool feeds(TierIndex index) const noexcept;
  // The tier that what `from` lets go comes to; kNoTier.
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
  // Blocks may leave the host for what lies in these, whatever follows them.
  void note_tiers_in_use() noexcept;
  void tell_evicted(std::span<const block::Evicted> gone);
  void tell_underflow() noexcept;
  // The same of what went for room, whether it lies anywhere below or not.
  void tell_lost(std::span<const block::Evicted> gone);
  void forget_others(const block::Publication& what, const Newcomers& newcomers, std::span<const Code> codes);
  // Families share these by number: a mark of one that shares is a miss more, never a block too many.
  struct Forgets {
    std::atomic<uint64_t> begun{0};
    std::atomic<uint64_t> ended{0};
  };
  static constexpr size_t kForgets = 64;
  class Forgetting;  // begins and ends the forgetting of one family, or of all
  void arm_pins(uint64_t deadline_ns);
  void expire_pins();
  void expire_taken_at(uint64_t when_ns);

  const Environment env_;
  const Options options_;
  FamilyTable families_;
  Events events_;
  Counters counters_;
  RoomLine room_{*this};  // whoever releases slots tells it
  std::shared_ptr<tier::HostArena> arena_;
  std::unique_ptr<DeviceCaches> devices_;  // registers what is in arena_, and goes before it
  std::unique_ptr<block::BlockTable> table_;
  std::unique_ptr<block::HoldTable> holds_;
  std::unique_ptr<block::PinTable> pins_;
  std::unique_ptr<TakenBlocks> taken_;
  uint8_t own_tiers_ = 0;  // flags of all that are not other nodes'
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
  std::atomic<bool> sync_failed_{false};  // and nothing has been offered again since
  std::atomic<uint64_t> not_taken_told_{0};  // of not_taken(), what flushes have told
  std::atomic<bool> closing_{false};
  // Of shutdown(), which takes no memory of its own: whoever closes has nobody to tell that there was none.
  std::atomic<size_t> closing_parts_{0};
  UniqueFunction<void()> closed_;
  std::array<Forgets, kForgets> forgets_;
  uint64_t record_base_ = 0;
  std::atomic<uint64_t> record_count_{0};
  // Namespaces give their accounts back, and may outlive the manager.
  const std::shared_ptr<Accounts> accounts_ = std::make_shared<Accounts>();
  // What all handles of one namespace share, by base id, as long as there is one.
  struct KnownNamespace {
    std::weak_ptr<const Accounts::Lease> account;  // while a handle is open
    std::vector<std::weak_ptr<Namespace>> handles;
  };
  // The account that has the limit now; null if the namespace needs none of its own.
  Result<std::shared_ptr<const Accounts::Lease>> limit_account(const NamespaceId& base_id, KnownNamespace& known,
                                                               uint64_t bytes, block::OverQuota mode)
      KVBM_REQUIRES(namespaces_mutex_);
  Status erase_families_of(const NamespaceId& id);
  Mutex giving_back_;  // one at a time
  // Held while an epoch is written down, by those who raise one: nobody else needs it. Taken before namespaces_mutex_.
  Mutex raising_;
  // Held over the table's limits (lib/README.md); never over I/O or a wait, never on a path of blocks.
  Mutex namespaces_mutex_;
  std::map<NamespaceId, KnownNamespace> known_ KVBM_GUARDED_BY(namespaces_mutex_);
  size_t known_after_sweep_ KVBM_GUARDED_BY(namespaces_mutex_) = 0;
  EpochTable epochs_ KVBM_GUARDED_BY(namespaces_mutex_);  // epochs that have ended stay ended
  Mutex heard_mutex_;
  std::deque<Heard> heard_ KVBM_GUARDED_BY(heard_mutex_);
  bool hearing_ KVBM_GUARDED_BY(heard_mutex_) = false;  // a task is at work
  std::atomic<uint64_t> armed_ns_{kNever};  // the pin timer that is set
};

}  // namespace kvbm::manager
