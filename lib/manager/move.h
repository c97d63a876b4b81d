// Moving blocks between tiers because a caller says so: prefetch (up) and offload (down).
#pragma once

#include <memory>
#include <vector>

#include "manager/match.h"
#include "manager/operation.h"

namespace kvbm::manager {

// Brings what a match found below into the host tier.
class PrefetchOperation final : public Operation {
 public:
  // A null match: nothing was found, the operation finishes at once.
  PrefetchOperation(std::shared_ptr<Manager> manager, std::shared_ptr<Match> match, size_t n_keys,
                    uint64_t deadline_ns);

 protected:
  Next step() override;
  void conclude(Code why, copy::Completion& completion) override;

 private:
  static constexpr size_t kBatch = 256;
  std::shared_ptr<Manager> manager_;
  std::shared_ptr<Match> match_;
  const size_t n_keys_;
  bool asked_ = false;
  std::atomic<uint64_t> waiting_{0};  // batches; the last one's release pairs with step's acquire
  std::atomic<uint64_t> done_{0};
  std::atomic<uint64_t> bytes_{0};
};

// Copies host blocks into one tier below, whatever its admission says.
class OffloadOperation final : public Operation {
 public:
  OffloadOperation(std::shared_ptr<Manager> manager, TierIndex tier, FamilyId family, std::vector<Key> keys,
                   uint64_t deadline_ns);

 protected:
  Next step() override;
  void conclude(Code why, copy::Completion& completion) override;

 private:
  std::shared_ptr<Manager> manager_;
  const TierIndex tier_;
  const FamilyId family_;
  const std::vector<Key> keys_;
  bool asked_ = false;
  std::atomic<uint64_t> waiting_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<uint64_t> bytes_{0};
  std::atomic<int32_t> first_error_{0};
};

}  // namespace kvbm::manager
