// Loads from the host and a disk beside a store that fails or hangs, against loads beside one that works.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

// Adds store.beside_<failing | hanging>.<host | disk>_p99: the 99th percentile of loads of four blocks of 64 KiB, while
// new blocks go to all tiers. The limit is 1.2 times that beside a store that works. The three kinds of store take
// turns, each in a manager of its own; medians of `rounds`. Needs 256 MiB in the directory for temporary files.
Status measure_beside_store(int rounds, std::vector<Row>& rows);

}  // namespace kvbm::benchmark
