// Edit distance of two words, for messages that suggest the word that was probably meant.
#pragma once

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

namespace kvbm {

// Returns the number of characters to insert, delete or replace to get from one to the other. O(|a| |b|).
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1] ? 1u : 0u)});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace kvbm
