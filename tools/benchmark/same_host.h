// Reading blocks of another node on this host: out of its host memory, in place.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct SameHostOptions {
  int rounds = 15;
  bool quiet = false;
};

// A node in a child process has 256 MiB of blocks in its host memory; this process is another node, which loads them
// into an engine's cache through the public interface, every byte verified, with no message. Timed is the load of what
// a lookup has found. node.same_host.<size> rotates through all of them, a batch a sample, against memcpy of the same
// memory, alternately, in the thread's own time; node.same_host_4KiB takes blocks by chance, one a call, on the wall.
// That the link carried none of it is checked. node.share.<size>: the same from the owner of a shared tier set to a
// client of it.
Result<std::vector<Row>> bench_same_host(const SameHostOptions& options);

}  // namespace kvbm::benchmark
