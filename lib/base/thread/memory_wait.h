// Lets library threads wait for memory: a thread that is refused memory sleeps and retries until it gets some. Its work
// belongs to operations that only it can end; an exception there would end the process. Calls of the interface return
// KVBM_ERR_NO_MEMORY instead: their threads are not the library's.
//
// Works through std::set_new_handler. libkvbm has a C++ runtime of its own, so the host's allocations never get here.
// Where the runtime is shared, other threads fall through to the previous handler.
#pragma once

#include <cstdint>

namespace kvbm {

// While it exists, operator new does not fail on this thread. Nests. Thread: any.
class MemoryWait {
 public:
  MemoryWait() noexcept;
  ~MemoryWait();
  MemoryWait(const MemoryWait&) = delete;
  MemoryWait& operator=(const MemoryWait&) = delete;
};

// Returns how often this process waited for memory.
uint64_t memory_waits() noexcept;

}  // namespace kvbm
