// `kvbm bench index`: measures what naming, finding and recycling blocks costs through the C calls, without any bytes
// being copied, next to a std::unordered_map of the same keys.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct IndexOptions {
  int rounds = 15;
  bool quiet = false;  // no progress bar
};

// Uses 131,072 blocks of 4 KiB, in batches of 64 keys, on one thread unless the row's name says otherwise. Rows are in
// ns per block.
Result<std::vector<Row>> bench_index(const IndexOptions& options);

}  // namespace kvbm::benchmark
