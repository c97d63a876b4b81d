// Reading blocks out of another process's host pool: what two nodes on one host, and an engine's processes, do.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct SameHostOptions {
  int rounds = 15;
  bool quiet = false;
};

// A child process owns pools of shared memory, 256 MiB for each size, and hands them over the local link; this process
// fetches records out of them, head and leaves verified, into 256 MiB of its own. node.same_host.<size> rotates through
// both, against memcpy of the same bytes alternately, in the thread's own time; node.same_host_4KiB takes slots by
// chance and times each fetch on the wall. The links's messages are not part of a fetch: its location is known.
Result<std::vector<Row>> bench_same_host(const SameHostOptions& options);

}  // namespace kvbm::benchmark
