// Records of a part that ranks of another tensor-parallel size stored: which families they are of, and how they are cut into
// records of the part.
//
// Shards are part of a record's identity, so the names of the others follow from the geometry: the same namespace, geometry,
// component and layers, the heads of another size. Nothing is asked of any format. Opaque records (without a geometry) are
// never cut, and latents and states never need it: every rank holds all of them, under one name.
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

// The shards of one size that hold the heads of a part between them. Immutable but for `refused`. Thread: any.
struct OtherSize {
  // Records of more bytes than this are not brought up for one block.
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;

  std::vector<Family> shards;                  // ascending by heads
  std::vector<FamilyId> families;              // beside shards; kNoFamily: nothing here has a record of it
  std::vector<layout::RecordShape> shapes;     // beside shards
  std::shared_ptr<const layout::Reslice> plan; // the shards' payloads into the part's
  [[nodiscard]] bool known() const noexcept;   // all of the families are
  // Records that were found turned out to be none that can be cut, so finding more of them is of no use.
  mutable std::atomic<bool> refused{false};
};
using OtherSizes = std::vector<std::shared_ptr<const OtherSize>>;

// Those of `own`, a family with a geometry whose records have the shape `target`; the largest shards come first. Without the
// families' ids.
std::vector<std::shared_ptr<OtherSize>> other_sizes_of(const layout::Geometry& geometry, const Family& own,
                                                       const layout::RecordShape& target);

}  // namespace kvbm::manager
