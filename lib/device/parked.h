// What a device that was given up may still read or write, kept until the process ends: given back, it would become
// other bytes under a late write. Bounded: the rings of the transfers that were given up, and what they refer to.
//
// The only state of the process in this layer, besides the driver itself. Thread: any.
#pragma once

#include <cstddef>
#include <memory>

namespace kvbm::device {

void park(std::shared_ptr<void> what);
[[nodiscard]] size_t parked_count();

}  // namespace kvbm::device
