// A thread for calls of the driver: tasks run there in the order of their posts, and no poster waits for the driver.
//
// It ends with the last reference to it. Where a call does not return it is left behind with what it still has to run.
#pragma once

#include <cstdint>
#include <memory>

#include "base/executor.h"
#include "base/status.h"

namespace kvbm::device {

// Named kvbm-<name>-0. `limit_ns`: it is left behind when it does not end within so long; kNever: it is waited for.
Result<std::shared_ptr<Executor>> start_driver_thread(const char* name, uint64_t limit_ns);

// Whether all that was posted so far has run within limit_ns; never from a task of `thread`.
bool has_run(Executor& thread, uint64_t limit_ns);

}  // namespace kvbm::device
