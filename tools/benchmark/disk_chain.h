// A prompt that is longer than the host: stored and loaded back through a host of an eighth of it, next to what raw
// io_uring does with the same bytes in the same directory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

// Adds disk.chain.<name>.store and .load of blocks of this size. Needs up to 4 GiB in `dir` while it runs.
Status measure_chain(const std::string& dir, uint64_t block_bytes, const std::string& name, int rounds,
                     std::vector<Row>& rows);

}  // namespace kvbm::benchmark
