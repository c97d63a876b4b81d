#include "base/thread/memory_wait.h"

#include <time.h>

#include <atomic>
#include <new>

namespace kvbm {

namespace {

constexpr timespec kPause{0, 2'000'000};

thread_local uint32_t waiting_scopes = 0;
std::atomic<uint64_t> waits{0};
std::atomic<std::new_handler> before{nullptr};  // set before refused() is installed, and never again

// Operator new retries when this returns.
void refused() {
  if (waiting_scopes == 0) {
    const std::new_handler handler = before.load(std::memory_order_relaxed);
    if (handler == nullptr) throw std::bad_alloc();
    handler();
    return;
  }
  waits.fetch_add(1, std::memory_order_relaxed);
  nanosleep(&kPause, nullptr);
}

void install() noexcept {
  // Runs once, on the first thread that needs it.
  static const bool done = [] {
    before.store(std::get_new_handler(), std::memory_order_relaxed);
    std::set_new_handler(refused);
    return true;
  }();
  (void)done;
}

}  // namespace

MemoryWait::MemoryWait() noexcept {
  if (waiting_scopes++ == 0) install();
}

MemoryWait::~MemoryWait() { --waiting_scopes; }

uint64_t memory_waits() noexcept { return waits.load(std::memory_order_relaxed); }

}  // namespace kvbm
