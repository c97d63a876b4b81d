// Moves blocks between tiers on a caller's request: prefetch (up) and offload (down).
#pragma once

#include <memory>
#include <vector>

#include "manager/host/space_queue.h"
#include "manager/operation/match.h"
#include "manager/operation/operation.h"
#include "manager/stack/onboard.h"

namespace kvbm::manager {

// Reads the blocks of a match that are below into the host tier. A block that is to stay must have a slot: without
// one this waits in the space queue, ahead of stores, and offloads drop what they only queue. What it may evict:
// landing_room.h.
class PrefetchOperation final : public Operation, public SpaceWaiter {
 public:
  // A null match means that nothing was found: the operation finishes at once.
  PrefetchOperation(std::shared_ptr<TierStack> stack, std::shared_ptr<Match> match, size_t n_keys,
                    uint64_t deadline_ns);
  void space_may_be_free() override { wake(); }

 protected:
  Next step() override;
  void conclude(Code why, copy::Completion& completion) override;

 private:
  static constexpr size_t kBatch = 256;
  void plan();
  Next bring_some();
  void ask(LandingRoom room);
  void landed(std::vector<Delivery> landed);
  void end_wait(bool got_some);
  std::shared_ptr<TierStack> stack_;
  HostTier& host_;
  std::shared_ptr<Match> match_;
  const size_t n_keys_;
  const uint64_t place_;  // in the space queue
  bool planned_ = false;
  bool holds_ = false;                           // its match holds blocks of the host
  std::vector<size_t> wanted_;                   // keys that are below, by tier
  size_t next_ = 0;                              // the first of them not requested yet
  uint64_t waits_since_ns_ = 0, waited_ns_ = 0;  // of the wait for a slot
  std::atomic<uint64_t> waiting_{0};  // slots being read into; the last one's release pairs with step's acquire
  std::atomic<uint64_t> done_{0};
  std::atomic<uint64_t> bytes_{0};
};

// Copies host blocks into one tier below, whatever its admission says. Holds the blocks from its construction on:
// blocks that the caller stores afterwards must not evict them before their turn.
class OffloadOperation final : public Operation {
 public:
  OffloadOperation(std::shared_ptr<TierStack> stack, TierIndex tier, FamilyId family, std::vector<Key> keys,
                   uint64_t deadline_ns);
  ~OffloadOperation() override { release_slots(); }
  OffloadOperation(const OffloadOperation&) = delete;
  OffloadOperation& operator=(const OffloadOperation&) = delete;

 protected:
  Next step() override;
  void conclude(Code why, copy::Completion& completion) override;

 private:
  void release_slots() noexcept;
  std::shared_ptr<TierStack> stack_;
  HostTier& host_;
  const TierIndex tier_;
  const size_t n_keys_;
  std::vector<SlotId> slots_;  // held until they are requested
  bool asked_ = false;
  std::atomic<uint64_t> waiting_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<uint64_t> bytes_{0};
  std::atomic<int32_t> first_error_{0};
};

}  // namespace kvbm::manager
