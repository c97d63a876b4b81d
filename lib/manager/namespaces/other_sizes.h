// Records of a part stored by ranks of another tensor-parallel size: their families, and how they are cut into
// records of the part.
//
// Shards are part of a record's identity, so the names of other sizes follow from the geometry: the same namespace,
// geometry, component and layers, and the heads of another size. No record format is involved. Opaque records
// (without a geometry) are never cut. Latents and states need no cutting: every rank holds all of them, under one
// name.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "layout/geometry.h"
#include "layout/reslice.h"

namespace kvbm::manager {

// The shards of one size that together hold the heads of a part. Immutable except for `refused`. Thread: any.
struct OtherSize {
  // Limit of the records that are read for one block.
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;

  std::vector<Family> shards;                   // ascending by heads
  std::vector<FamilyId> families;               // parallel to shards; kNoFamily: nothing here has a record of it
  std::vector<layout::RecordShape> shapes;      // parallel to shards
  std::shared_ptr<const layout::Reslice> plan;  // re-slices the shards' payloads into the part's
  [[nodiscard]] bool known() const noexcept;    // all families are known
  // Records that were found could not be cut, so finding more of them is useless.
  mutable std::atomic<bool> refused{false};
};
using OtherSizes = std::vector<std::shared_ptr<const OtherSize>>;

// Returns the other sizes of `own`, a family with a geometry and with records of shape `target`. The largest shards
// are first. The families' ids are not set.
std::vector<std::shared_ptr<OtherSize>> other_sizes_of(const layout::Geometry& geometry, const Family& own,
                                                       const layout::RecordShape& target);

}  // namespace kvbm::manager
