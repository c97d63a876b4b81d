// Measures how much of a full disk tier's capacity is payload, and not heads, padding, footers or space for the next
// segment.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

// Adds disk.payload_share.<4KiB | 64KiB | 1MiB>. Needs 4 GiB in `dir` while it runs.
Status measure_payload_share(const std::string& dir, std::vector<Row>& rows);

}  // namespace kvbm::benchmark
