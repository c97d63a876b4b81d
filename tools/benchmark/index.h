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

// 131,072 blocks of 4 KiB, batches of 64 keys, one thread unless the row says otherwise; ns per block.
Result<std::vector<Row>> bench_index(const IndexOptions& options);

}  // namespace kvbm::benchmark
