// Queries to other processes and nodes for records of another tensor-parallel size: few, in two steps.
//
// The sizes that others have are not known here, and a lookup that misses is ordinary. Step one asks for the first
// few missing keys in every possible size. Step two asks for all other keys, only in a size that had one of the first
// keys whole. Until some size had one, a namespace handle repeats step one after kQuietNs only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "manager/namespaces/namespace.h"

namespace kvbm::manager {

class LowerTiers;

class AskOtherSizes {
 public:
  static constexpr size_t kFirstKeys = 4;
  static constexpr uint64_t kQuietNs = 1'000'000'000;

  AskOtherSizes(LowerTiers& lower, Namespace& ns, std::span<const PartPlan> parts, std::span<const Key> keys)
      : lower_(lower), ns_(ns), parts_(parts), keys_(keys) {}
  // Returns the records to ask for in step one.
  std::vector<Identity> first();
  [[nodiscard]] bool has_more() const noexcept { return !lacking_.empty(); }
  // Returns the records to ask for in step two, once step one is answered.
  std::vector<Identity> rest();

 private:
  struct Lacking {
    OtherSizes sizes;
    std::vector<Key> keys;  // found in no tier
  };

  LowerTiers& lower_;
  Namespace& ns_;
  const std::span<const PartPlan> parts_;
  const std::span<const Key> keys_;
  std::vector<Lacking> lacking_;  // parts with missing keys
};

}  // namespace kvbm::manager
