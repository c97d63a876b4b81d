// What comes into one tier below: host blocks, and what the tier above it lets go.
//
// Blocks reach the queue when they are stored or used (admission decides), when room in the host runs
// short (demotion), or because a caller asks. Those that wait within a share of the host keep a reference, so
// that their bytes stay; those beyond it wait without one, and are skipped and counted if they were
// evicted before their turn. Stores wait for room instead, and all of theirs stay. What the tier is sent of them has a share, too: all edges together leave a quarter of
// the host, but for what callers ask for. Batches are formed so that blocks stored together lie together below. A block
// is written by one batch at a time: whoever wants the same while it is being written waits for that and gets its
// outcome. Lock: `mutex_`; never held while the tier or a callback is called.
// Callers have done what they were asked for and are not told of an offload that fails: all here waits for memory
// (base/memory_wait.h).
//
// What a tier above lets go (take_over.cc) is in its memory already and goes straight on; that tier bounds it.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "block/block_table.h"
#include "manager/options.h"
#include "policy/admission.h"
#include "tier/tier.h"

namespace kvbm::manager {

class Manager;

class Offloader {
 public:
  // Told how each block of an explicit request ended.
  using Report = UniqueFunction<void(size_t index, Code code)>;

  Offloader(Manager& manager, TierIndex tier, const TierOptions& options);

  // Blocks came to the host, or were used there. The caller holds references for the call. `all_stay`: the operation that
  // brings them waits for room, so those that are admitted stay until their turn, beyond the share as well.
  void stored(std::span<const SlotId> slots, bool all_stay = false);
  void used(std::span<const SlotId> slots);
  // Offloads held slots whatever admission says; takes over the caller's references. `report` runs once per
  // slot, then is dropped.
  void request(std::vector<SlotId> slots, std::shared_ptr<Report> report);
  // Called after allocations: when room in the host runs short, sends down what would be evicted next and is not
  // there yet, then frees it: what was not taken stays. This is how on_eviction works, and the second chance of what `all`
  // had no queue for. `wanted`: so many slots are waited for, of this account where it is at its limit.
  // What is still read when it is there stays, and the next one goes in its place: who waits until nothing is under way
  // (when_idle) finds room, as long as anything can go.
  void relieve(size_t wanted = 0, block::AccountId account = block::kSharedAccount);
  // Blocks that an allocation or a lower quota has evicted: on_eviction counts those that it should have had.
  void evicted(std::span<const block::Evicted> gone);
  // Gives up references of queued blocks that admission alone has queued, the last ones first, of at most so many: they
  // may be evicted before their turn. How many it were.
  size_t yield(size_t blocks);
  // Leaves in `ids` what this tier is to take over from one above it: admitted, and not here yet.
  void choose_wanted(std::vector<Identity>& ids);
  // Records that `from` lets go (tier::TierListener::take_over).
  void take_over(TierIndex from, std::unique_ptr<tier::PutBatch> batch);
  // Erases records here. What was stored anew meanwhile and had come here already, or is on its way, may be gone with
  // them, and is sent again.
  void erase(std::span<const Identity> ids);
  // The same of whole families, in ascending order.
  Status erase_families(std::span<const FamilyId> families);
  // Records are here no more: the tier let them go, or they were erased. No block of the host says from then on that
  // its record is here. Whose record may have come back, or was another's, is told so without need: that costs a write.
  void left(std::span<const Identity> ids);
  // Blocks of the host, held, that were marked as here: the mark ends where the record has left meanwhile. Those.
  std::vector<SlotId> confirm(std::span<const SlotId> slots);
  // Runs when nothing is queued or in flight (now, if so).
  void when_idle(UniqueFunction<void()> idle);
  [[nodiscard]] bool admits_on_use() const noexcept;
  // Blocks that did not come to be here though they were sent, but for those whose senders were told.
  [[nodiscard]] uint64_t failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t queued_bytes() const;
  // Of blocks that references of its own keep in the host.
  [[nodiscard]] uint64_t held_bytes() const;

 private:
  struct Entry {
    SlotId slot = kNoSlot;
    bool evict_after = false;
    size_t index = 0;
    std::shared_ptr<Report> report = nullptr;
    bool held = true;         // a reference is ours
    bool marked = false;      // in queued_
    bool again = false;       // was written, and erased with an earlier block of its key: it is written once more
    uint32_t generation = 0;  // of the slot, where marked
  };
  // A batch that the tier has. It ends when the tier has answered and put() has returned: whoever called that holds
  // references of its own as long, which would keep in the host what is to go.
  struct Sent {
    std::vector<Entry> entries;
    std::vector<Code> codes;
    uint64_t charged = 0;
    uint64_t left = 0;    // left_ before the tier had it
    uint64_t erased = 0;  // erased_ then
    std::atomic<int> open{2};
  };
  struct Queued {
    bool is = false;
    bool held = false;
    uint32_t generation = 0;
  };
  enum class Turn : uint8_t { now, later, over };
  // How long to wait for whoever makes the head of a record: it hashes one block.
  static constexpr uint64_t kHeadRetryNs = 50'000;
  // Bytes of one batch and of all batches in flight: large enough for a disk's best speed; less where the host is
  // small.
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

  Manager& manager_;
  const TierIndex tier_;
  const TierOptions options_;
  const uint64_t limit_bytes_;
  const uint64_t slot_bytes_;
  const uint64_t flight_bytes_;
  // How often records left. Raised after they have and before their blocks are unmarked: who marks a block and then
  // finds this as it was before the tier had the record knows that it has not left, or that the mark will be ended.
  std::atomic<uint64_t> left_{0};
  // Erasings begun, and ended. Who reads the second and later finds that the first is another knows that one has been
  // under way meanwhile.
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
  uint32_t ending_ KVBM_GUARDED_BY(mutex_) = 0;  // batches that have ended and look for others to send down
  // By slot: what admission has queued.
  std::vector<Queued> queued_ KVBM_GUARDED_BY(mutex_);
  std::vector<bool> writing_ KVBM_GUARDED_BY(mutex_);               // with a reference of the one who writes
  std::multimap<SlotId, Entry> followers_ KVBM_GUARDED_BY(mutex_);  // of what is being written, with references
  std::vector<UniqueFunction<void()>> idle_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager
