// Measures verified copies into and out of the host tier against libc's memcpy of the same bytes.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct CopyOptions {
  int rounds = 15;
  bool quiet = false;
};

// Each size rotates through 512 MiB of source and as much target, in huge pages if the system gives them, on one
// thread. Copies and memcpy alternate, and rows have the medians of the rounds. Time is the thread's own, because on
// a busy machine the longer of two samples is interrupted more often, which changes the ratio of wall times. A record
// is copied leaf by leaf, as stores and loads do.
Result<std::vector<Row>> bench_copy(const CopyOptions& options);

}  // namespace kvbm::benchmark
