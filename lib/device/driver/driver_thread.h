// A thread for calls of the driver: tasks run there in the order of their posts, and no poster waits for the driver.
//
// The thread ends with the last reference to it. If a call does not return, the thread is left behind with its
// remaining tasks.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/thread/executor.h"

namespace kvbm::device {

// Starts the thread kvbm-<name>-0. `limit_ns`: the thread is left behind if it does not end within this time; kNever:
// its end is awaited.
Result<std::shared_ptr<Executor>> start_driver_thread(const char* name, uint64_t limit_ns);

// Returns whether everything posted so far has run within limit_ns; never called from a task of `thread`.
bool has_run(Executor& thread, uint64_t limit_ns);

}  // namespace kvbm::device
