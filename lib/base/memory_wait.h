// Who has nobody to tell waits: a thread of the library that is refused memory sleeps and asks again, for as long as it
// takes. Its work belongs to operations of others, which only it can end; an exception there would end the process.
// Calls of the interface are told instead (KVBM_ERR_NO_MEMORY): their threads are not the library's.
//
// Works through std::set_new_handler. libkvbm has a C++ runtime of its own, so the host's allocations never come here;
// where the runtime is shared, other threads fall through to the handler that was there before.
#pragma once

#include <cstdint>

namespace kvbm {

// On this thread, while it lives, operator new does not refuse. Nests. Thread: any.
class MemoryWait {
 public:
  MemoryWait() noexcept;
  ~MemoryWait();
  MemoryWait(const MemoryWait&) = delete;
  MemoryWait& operator=(const MemoryWait&) = delete;
};

// How often memory was waited for, in this process.
uint64_t memory_waits() noexcept;

}  // namespace kvbm
