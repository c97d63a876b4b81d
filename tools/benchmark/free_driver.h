// A CUDA driver with calls that cost nothing and do nothing. The rest of a store or a load is the library's own work.
// It counts its calls. Its one device has no memory of its own: addresses are the host's, and pinned memory is full
// of ones, so that every leaf is good and all hashes agree.
#pragma once

#include <cstdint>

#include "device/driver/driver.h"

namespace kvbm::benchmark {

// Lives as long as the process.
const device::Driver& free_driver() noexcept;
// Returns the calls of the driver so far that enqueue, record or wait. Calls that query a context or allocate memory
// do not count.
uint64_t free_driver_calls() noexcept;
// Makes [base, base + bytes) the device's memory from now on, instead of the range before.
void free_driver_owns(const void* base, uint64_t bytes) noexcept;

}  // namespace kvbm::benchmark
