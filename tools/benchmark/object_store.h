// `kvbm bench store`: moves blocks through the C calls into a store and back, next to the same store's own requests.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct ObjectStoreOptions {
  std::string url;
  int rounds = 5;
  bool quiet = false;
};

// Writes 512 MiB per round into the store, 128 MiB at a time, and removes them again.
Result<std::vector<Row>> bench_object_store(const ObjectStoreOptions& options);

}  // namespace kvbm::benchmark
