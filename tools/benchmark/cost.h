// `kvbm bench cost`: loads that know the compute time of a block, next to the better of loading everything and
// computing everything, on a disk with a cap.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct CostOptions {
  std::string dir = ".";
  int rounds = 3;
  bool quiet = false;
};

// Needs 512 MiB in `dir` while it runs.
Result<std::vector<Row>> bench_cost(const CostOptions& options);

}  // namespace kvbm::benchmark
