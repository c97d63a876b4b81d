// Leaves of a record without a geometry.
#pragma once

#include <cstdint>
#include <vector>

#include "codec/record/record.h"

namespace kvbm::test {

inline std::vector<codec::Leaf> opaque_leaves(uint64_t raw_bytes) {
  std::vector<codec::Leaf> leaves(codec::opaque_leaf_count(raw_bytes));
  for (uint32_t i = 0; i < leaves.size(); ++i) leaves[i] = codec::opaque_leaf(raw_bytes, i);
  return leaves;
}

}  // namespace kvbm::test
