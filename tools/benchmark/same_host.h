// Measures reading blocks of another node on this host, in place in its host memory.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct SameHostOptions {
  int rounds = 15;
  bool quiet = false;
};

// A node in a child process has 256 MiB of blocks in its host memory. This process is another node, which loads them
// into an engine's cache through the public interface, every byte verified, with no message. Only the load is timed,
// not the lookup before it.
//
// node.same_host.<size> rotates through all blocks, a batch per sample, against memcpy of the same memory,
// alternately, in the thread's own time. node.same_host_4KiB takes random blocks, one per call, in wall time. The
// benchmark checks that the link carried none of them. node.share.<size>: reads from the owner of a shared tier set
// to a client of it.
Result<std::vector<Row>> bench_same_host(const SameHostOptions& options);

}  // namespace kvbm::benchmark
