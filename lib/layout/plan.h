// Plans: where a leaf's canonical bytes lie in engine memory. One leaf is always exactly one
// StridedRun (heads x tokens pieces at most, fewer when they are contiguous), read in the order
// i (count0) outer, j (count1) inner. No allocation, no table; a few ns a leaf.
#pragma once

#include "base/bytes.h"
#include "layout/arrangement.h"
#include "layout/record_shape.h"

namespace kvbm::layout {

// The run that holds `leaf` when engine block `block` holds the leaf's unit. block < blocks().
StridedRun plan_leaf(const Arrangement& arrangement, const LeafExtent& leaf, BlockId block) noexcept;
StridedRun plan_page(const PageArrangement& arrangement, const PageLeaf& leaf, BlockId block) noexcept;

}  // namespace kvbm::layout
