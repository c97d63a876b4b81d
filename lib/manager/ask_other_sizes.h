// What is asked of other processes and nodes about records of another tensor-parallel size: little, in two steps.
//
// Which sizes others have is not known here, and a lookup that misses is an ordinary thing. So the first few keys that are
// nowhere are asked for in every size there may be, and only of a size that had one of them whole all the others are. Until
// some size had one, a handle of the namespace asks again after kQuietNs only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "manager/namespace.h"

namespace kvbm::manager {

class Manager;

class AskOtherSizes {
 public:
  static constexpr size_t kFirstKeys = 4;
  static constexpr uint64_t kQuietNs = 1'000'000'000;

  AskOtherSizes(Manager& manager, Namespace& ns, std::span<const PartPlan> parts, std::span<const Key> keys)
      : manager_(manager), ns_(ns), parts_(parts), keys_(keys) {}
  // What to ask for first.
  std::vector<Identity> first();
  [[nodiscard]] bool has_more() const noexcept { return !lacking_.empty(); }
  // When that was answered: what else to ask for.
  std::vector<Identity> rest();

 private:
  struct Lacking {
    OtherSizes sizes;
    std::vector<Key> keys;  // that are nowhere
  };

  Manager& manager_;
  Namespace& ns_;
  const std::span<const PartPlan> parts_;
  const std::span<const Key> keys_;
  std::vector<Lacking> lacking_;  // of parts that lack some
};

}  // namespace kvbm::manager
