// Memory of a device that sessions hold, given up where the driver may take its time: on the device's own thread.
#pragma once

#include <memory>
#include <utility>

#include "base/thread/executor.h"
#include "base/thread/memory_wait.h"

namespace kvbm::manager {

template <class T>
std::shared_ptr<void> deferred_free(std::shared_ptr<T> memory, std::shared_ptr<Executor> thread) {
  T* const raw = memory.get();
  return {static_cast<void*>(raw), [thread = std::move(thread), memory = std::move(memory)](void*) mutable {
            const MemoryWait patient;
            thread->post([last = std::move(memory)] {});
          }};
}

}  // namespace kvbm::manager
