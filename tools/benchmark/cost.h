// `kvbm bench cost`: loads that know what computing takes, next to the better of loading everything and computing
// everything, on a disk that is capped.
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
