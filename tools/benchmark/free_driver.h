// A CUDA driver whose calls cost nothing and do nothing: what is left of a store or a load is the library's own work. It counts
// its calls. Its one device has no memory of its own: addresses are the host's, pinned memory is full of ones, so that every leaf is
// good and all hashes agree.
#pragma once

#include <cstdint>

#include "device/driver.h"

namespace kvbm::benchmark {

// Lives as long as the process.
const device::Driver& free_driver() noexcept;
// Calls of the driver so far that enqueue, record or wait: not those that say what a context is, or take memory.
uint64_t free_driver_calls() noexcept;
// Memory of [base, base + bytes) is the device's from now on; whatever was before is not any more.
void free_driver_owns(const void* base, uint64_t bytes) noexcept;

}  // namespace kvbm::benchmark
