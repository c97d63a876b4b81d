// Finds rows that repeat within a leaf: V of the first layer depends only on the token, and rows of tokens that are not
// filled yet are equal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "codec/leaf/leaf_form.h"

namespace kvbm::codec {

inline constexpr uint32_t kMinRowBytes = 32;
inline constexpr uint32_t kMaxRowsOfLeaf = 2048;

// Rows of a leaf: `index` maps each row to one of the different ones.
struct LeafRows {
  uint32_t row_bytes = 0;
  uint32_t rows = 0;
  uint32_t different = 0;
  uint16_t index[kMaxRowsOfLeaf];
};

// Copies the different rows, in order of their first place, to `rows_out` (as long as `raw`). false, mostly after a
// check of a few rows: too few repeat to be worth it.
bool find_equal_rows(const LeafForm& form, ConstBytes raw, LeafRows& found, std::byte* rows_out) noexcept;

}  // namespace kvbm::codec
