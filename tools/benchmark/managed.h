// What it costs that a managed block has its hashes when it is registered, against the leaf hash alone; and storing
// from an attached cache, which hashes as it copies.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct ManagedOptions {
  int rounds = 15;
  bool quiet = false;
};

// managed.register.SIZE: blocks whose bytes are nowhere in the caches are registered, 256 MiB a round, in GB/s of the
// thread's own time; its limit is hashing the same bytes, leaf by leaf, on that thread. managed.register_late.SIZE: the
// same with host.managed_hashes = when_needed, in ns a block. managed.store.SIZE: storing as many bytes from an
// attached cache, on the wall, against the leaf hash. Medians; the two take turns in beginning.
Result<std::vector<Row>> bench_managed(const ManagedOptions& options);

}  // namespace kvbm::benchmark
