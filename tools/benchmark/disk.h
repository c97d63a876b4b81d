// `kvbm bench disk`: measures the disk tier through the C calls, next to raw io_uring in the same directory.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct DiskOptions {
  std::string dir = ".";
  int rounds = 9;
  uint64_t reopen_records = 500000;
  bool quiet = false;
};

// Needs up to 5 GiB in `dir` while it runs.
Result<std::vector<Row>> bench_disk(const DiskOptions& options);

}  // namespace kvbm::benchmark
