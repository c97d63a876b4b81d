// Counts heap allocations made through operator new, by thread. The library is linked into the command and allocates
// memory in no other way, so a count over calls of kvbm is what those calls allocated. With AddressSanitizer, which
// has its own operator new, the count stays 0 (allocations_counted()).
#pragma once

#include <cstdint>

namespace kvbm::benchmark {

// Returns this thread's allocations so far.
uint64_t allocations() noexcept;
bool allocations_counted() noexcept;

}  // namespace kvbm::benchmark
