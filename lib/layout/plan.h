// Plans: where a leaf's canonical bytes lie in engine memory. One leaf is always exactly one
// StridedRun (heads x tokens pieces at most, fewer when they are contiguous), read in the order
// i (count0) outer, j (count1) inner. No allocation, no table; a few ns a leaf.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "layout/arrangement.h"
#include "layout/record_shape.h"

namespace kvbm::layout {

// The run that holds `leaf` when engine block `block` holds the leaf's unit. block < blocks().
StridedRun plan_leaf(const Arrangement& arrangement, const LeafExtent& leaf, BlockId block) noexcept;
StridedRun plan_page(const PageArrangement& arrangement, const PageLeaf& leaf, BlockId block) noexcept;

// The runs of one record: unit u lies in engine block blocks[u]. Refers to its arguments, which
// must outlive it.
class RecordPlan {
 public:
  // invalid_argument when the shape does not fit the arrangement, the number of ids is not the
  // shape's units, or an id is out of range. A load of the first m units passes a shape of all
  // units with m ids: only leaves of those units may then be asked for.
  static Result<RecordPlan> make(const Arrangement& arrangement, const RecordShape& shape,
                                 std::span<const BlockId> blocks);
  [[nodiscard]] StridedRun run(uint32_t leaf) const noexcept {
    const LeafExtent extent = shape_->leaf(leaf);
    return plan_leaf(*arrangement_, extent, blocks_[extent.unit]);
  }

 private:
  RecordPlan(const Arrangement& a, const RecordShape& s, std::span<const BlockId> b)
      : arrangement_(&a), shape_(&s), blocks_(b) {}

  const Arrangement* arrangement_;
  const RecordShape* shape_;
  std::span<const BlockId> blocks_;
};

}  // namespace kvbm::layout
