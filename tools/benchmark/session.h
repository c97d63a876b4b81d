// Measures prefill->decode sessions without a network: planning, gathering out of one engine's blocks, verified
// scatter into another's.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct SessionOptions {
  int rounds = 9;
  bool quiet = false;
};

// One decode rank of a model of 80 layers, 8 KV heads x 128, bf16, 4,096 tokens, tensor-parallel 8 to 4, slices of 1
// MiB, blocks in random order. Gather, scatter and a memcpy of the same bytes between the same tensors, in linear
// order, take turns on one thread. Rows are medians of rounds in the thread's own time.
Result<std::vector<Row>> bench_session(const SessionOptions& options);

}  // namespace kvbm::benchmark
