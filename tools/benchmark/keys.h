// `kvbm bench keys`: measures deriving a block key next to the bare hash of the same bytes.
#pragma once

#include <vector>

#include "benchmark/row.h"

namespace kvbm::benchmark {

// keys.block16: ns per 16-token block of a chain, against SHA-256 of as many bytes as a key's input has.
std::vector<Row> bench_keys();

}  // namespace kvbm::benchmark
