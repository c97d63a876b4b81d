// Offload queue of one tier below: host blocks, and records that the tier above evicts.
//
// Blocks are queued when they are stored or used (admission decides), when free host slots run short (demotion), or
// because a caller asks. Queued blocks within a share of the host hold a reference, so that their bytes stay. Those
// beyond it wait without one, and are skipped and counted if they are evicted before their turn. Stores wait for
// slots instead, and all of their blocks hold references. Batches in flight have a share, too: all edges together
// leave a quarter of the host, not counting what callers ask for. Batches are formed so that blocks stored together
// lie together below. A block is written by one batch at a time: a second entry for it waits for that write and gets
// its outcome. Lock: `mutex_`; never held while the tier or a callback is called. Callers have completed already and
// learn nothing of a failed offload: everything here waits for memory (base/thread/memory_wait.h).
//
// Records that a tier above evicts (take_over.cc) are in that tier's memory and are sent at once; that tier bounds
// them.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/thread/mutex.h"
#include "block/block_table.h"
#include "manager/common/options.h"
#include "policy/admission.h"
#include "tier/tier.h"

namespace kvbm::manager {

class HostTier;
class TierOrder;

class Offloader {
 public:
  // Reports how each block of an explicit request ended.
  using Report = UniqueFunction<void(size_t index, Code code)>;

  // Everything that is passed outlives this object, except the options.
  Offloader(HostTier& host, TierOrder& order, TierIndex tier, const TierOptions& options);

  // Notify of blocks that were stored in the host, or used there. The caller holds references for the call.
  // `all_stay`: the storing operation waits for slots, so admitted blocks hold references until their turn, beyond
  // the share as well.
  void stored(std::span<const SlotId> slots, bool all_stay = false);
  void used(std::span<const SlotId> slots);
  // Offloads held slots whatever admission says; takes over the caller's references. `report` runs once per slot,
  // then is dropped.
  void request(std::vector<SlotId> slots, std::shared_ptr<Report> report);
  // Runs after allocations. If free slots run short, writes the next blocks to be evicted that are not here yet, then
  // evicts them; blocks that the tier does not take stay. This implements on_eviction, and retries blocks that `all`
  // had no queue space for. `wanted`: the number of slots that are waited for, of this account if it is at its limit.
  // A block that is still being read once it is written stays, and the next one is written instead. So a caller that
  // waits until nothing is in flight (when_idle) finds a free slot, as long as any block can be evicted. A caller that
  // asks again for `wanted` slots meanwhile gets no others: blocks on their way out count for it.
  void relieve(size_t wanted = 0, block::AccountId account = block::kSharedAccount);
  // Reports blocks that an allocation or a lower quota has evicted: on_eviction counts those that it should have got.
  void evicted(std::span<const block::Evicted> gone);
  // Drops the references of up to `blocks` queued blocks, the last ones first, so that they may be evicted before
  // their turn. Only blocks that admission has queued. Returns the number.
  size_t yield(size_t blocks);
  // Leaves in `ids` the records that this tier takes over from one above it: admitted, and not here yet.
  void choose_wanted(std::vector<Identity>& ids);
  // Takes records that `from` evicts (tier::TierListener::take_over).
  void take_over(TierIndex from, std::unique_ptr<tier::PutBatch> batch);
  // Erases records here. A block stored anew meanwhile may be erased with them, if it is here or in flight; it is
  // sent again.
  void erase(std::span<const Identity> ids);
  // Erases all records of whole families, given in ascending order.
  Status erase_families(std::span<const FamilyId> families);
  // Notes that records are gone from here: the tier evicted them, or they were erased. From then on no host block is
  // flagged as being here. A flag may be cleared without need, if the record returned or was another's: that costs
  // one write.
  void left(std::span<const Identity> ids);
  // Re-checks `slots` against the tier. If a record is gone, clears the on-tier flag of its slot. Returns those
  // slots. The caller holds references.
  std::vector<SlotId> confirm(std::span<const SlotId> slots);
  // Runs `idle` when nothing is queued or in flight (now, if so).
  void when_idle(UniqueFunction<void()> idle);
  [[nodiscard]] bool admits_on_use() const noexcept;
  // Notes blocks that were stored here, and that the tier has lost with a sync that failed.
  void note_lost(uint64_t blocks) noexcept { failed_.fetch_add(blocks, std::memory_order_release); }
  // Returns how many blocks were sent and are not stored, except blocks of requests with a report.
  [[nodiscard]] uint64_t failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t queued_bytes() const;
  // Returns the bytes of blocks that this object's references keep in the host.
  [[nodiscard]] uint64_t held_bytes() const;

 private:
  struct Entry {
    SlotId slot = kNoSlot;
    bool evict_after = false;
    size_t index = 0;
    std::shared_ptr<Report> report = nullptr;
    bool held = true;     // holds a reference
    bool marked = false;  // in queued_
    bool again = false;   // was written, then erased with an earlier block of its key: must be written once more
    block::AccountId account = block::kSharedAccount;  // of the block, with evict_after
    uint32_t generation = 0;                           // of the slot, if marked
  };
  // A batch that the tier has. It ends when the tier has answered and put() has returned: until then send() holds
  // references of its own, which would keep blocks from being evicted.
  struct Sent {
    std::vector<Entry> entries;
    std::vector<Code> codes;
    uint64_t charged = 0;
    uint64_t left = 0;    // left_ before the tier had it
    uint64_t erased = 0;  // erased_ at that time
    std::atomic<int> open{2};
  };
  struct Queued {
    bool is = false;
    bool held = false;
    uint32_t generation = 0;
  };
  enum class Turn : uint8_t { now, later, over };
  // Retry interval while another thread makes a record's head, which takes as long as hashing one block.
  static constexpr uint64_t kHeadRetryNs = 50'000;
  // Bytes of one batch and of all batches in flight: large enough for a disk's best speed; less on a small host.
  static constexpr uint64_t kBatchBytes = 4ULL << 20;
  static constexpr uint64_t kFirstBatchBytes = 1ULL << 20;
  static constexpr uint64_t kFlightBytes = 32ULL << 20;
  static constexpr size_t kBatchItems = 512;

  void add(std::vector<Entry> entries, bool all_stay = false);
  [[nodiscard]] bool take_reference(Entry& entry);
  void pump();
  std::vector<Entry> next_batch() KVBM_REQUIRES(mutex_);
  void send(std::vector<Entry> entries);
  void send_later(std::vector<Entry> entries);
  Turn begin(Entry& entry, tier::PutItem& item, std::vector<Entry>& later);
  void end_writing(std::vector<Entry>& entries, std::vector<Code>& codes);
  void finished(Sent& sent, tier::PutBatch& batch);
  void mark_again(Sent& sent, std::span<const SlotId> gone) const;
  void tell_removed(std::span<const SlotId> gone) const;
  void queue_again(Sent& sent);
  void end(Sent& sent);
  void drop(std::span<Entry> entries, Code why);
  void note_failure(const Entry& entry, Code code) noexcept;
  [[nodiscard]] uint32_t shortage(uint32_t low, bool counts_demotions, block::AccountId account) const
      KVBM_REQUIRES(mutex_);
  void end_demotions(std::span<const Entry> entries) KVBM_REQUIRES(mutex_);
  [[nodiscard]] std::vector<SlotId> unmark(std::span<const Identity> ids);
  void send_again(std::vector<SlotId> held);
  void erase_forgotten(std::span<const SlotId> slots);
  void erase_what_was_late(std::span<const SlotId> withdrawn);
  [[nodiscard]] bool at_rest() const KVBM_REQUIRES(mutex_) {
    return queue_.empty() && in_flight_ == 0 && taking_over_ == 0 && !relieving_ && ending_ == 0;
  }
  struct Moving;
  void erase_forgotten(const Moving& moving);
  void took_over(const Moving& moving, const tier::PutBatch& batch);

  HostTier& host_;
  TierOrder& order_;
  const TierIndex tier_;
  const TierOptions options_;
  const uint64_t limit_bytes_;
  const uint64_t slot_bytes_;
  const uint64_t flight_bytes_;
  // Number of removals. Raised after records are gone and before their blocks are unmarked. So a thread that marks a
  // block, and then finds the value from before the tier had the record, can rely on one of two: the record is there,
  // or the mark will be cleared.
  std::atomic<uint64_t> left_{0};
  // Number of erases begun, and ended. A thread that reads erased_ first and later finds another value in erasing_
  // knows that an erase was in progress meanwhile.
  class Erasing;
  std::atomic<uint64_t> erasing_{0};
  std::atomic<uint64_t> erased_{0};
  std::atomic<uint64_t> failed_{0};
  mutable Mutex mutex_;
  std::unique_ptr<policy::Admission> admission_ KVBM_GUARDED_BY(mutex_);
  std::deque<Entry> queue_ KVBM_GUARDED_BY(mutex_);
  uint64_t held_ KVBM_GUARDED_BY(mutex_) = 0;  // bytes of queued entries with a reference
  uint64_t in_flight_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t taking_over_ KVBM_GUARDED_BY(mutex_) = 0;
  bool relieving_ KVBM_GUARDED_BY(mutex_) = false;
  // Entries with evict_after, queued or in flight: of all accounts, and of each.
  uint32_t all_demotions_ KVBM_GUARDED_BY(mutex_) = 0;
  std::map<block::AccountId, uint32_t> demotions_ KVBM_GUARDED_BY(mutex_);
  uint32_t ending_ KVBM_GUARDED_BY(mutex_) = 0;  // batches that have ended and look for others to send down
  // Blocks queued by admission, by slot.
  std::vector<Queued> queued_ KVBM_GUARDED_BY(mutex_);
  std::vector<bool> writing_ KVBM_GUARDED_BY(mutex_);               // with a reference of the writing batch
  std::multimap<SlotId, Entry> followers_ KVBM_GUARDED_BY(mutex_);  // wait for a block being written; with references
  std::vector<UniqueFunction<void()>> idle_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager
