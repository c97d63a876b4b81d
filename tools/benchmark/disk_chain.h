// Measures a prompt that is longer than the host tier: stored and loaded through a host tier of an eighth of its
// size, next to raw io_uring with the same bytes in the same directory.
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
