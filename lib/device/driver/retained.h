// Memory that a device which was given up may still read or write, retained until the process ends: after a release, a
// late write would change bytes of a new owner. Bounded: the rings of the transfers that were given up, and the objects
// that they refer to.
//
// This is the only state of the process in this layer, besides the driver itself. Thread: any.
#pragma once

#include <cstddef>
#include <memory>

namespace kvbm::device {

void retain_until_exit(std::shared_ptr<void> what);
[[nodiscard]] size_t retained_count();

}  // namespace kvbm::device
