// Measures what hashing a managed block at its registration costs, against the leaf hash alone, and storing from an
// attached cache, which hashes during the copy.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct ManagedOptions {
  int rounds = 15;
  bool quiet = false;
};

// managed.register.SIZE: registers blocks with bytes in none of the caches, 256 MiB per round, in GB/s of the
// thread's own time. Its limit is hashing the same bytes, leaf by leaf, on that thread. managed.register_late.SIZE:
// registers with host.managed_hashes = when_needed, in ns per block. managed.store.SIZE: stores as many bytes from an
// attached cache, in wall time, against the leaf hash. Rows are medians; the two take turns in beginning.
Result<std::vector<Row>> bench_managed(const ManagedOptions& options);

}  // namespace kvbm::benchmark
