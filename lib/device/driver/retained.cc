#include "device/driver/retained.h"

#include <atomic>
#include <utility>

namespace kvbm::device {

namespace {

struct Retained {
  std::shared_ptr<void> what;
  Retained* next = nullptr;
};

// The last one first. Never destroyed, because the device does not know when the process begins to end.
std::atomic<Retained*> last_retained{nullptr};

}  // namespace

void retain_until_exit(std::shared_ptr<void> what) {
  auto* const one = new Retained{std::move(what), last_retained.load(std::memory_order_relaxed)};
  while (!last_retained.compare_exchange_weak(one->next, one, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

size_t retained_count() {
  size_t n = 0;
  for (const Retained* one = last_retained.load(std::memory_order_acquire); one != nullptr; one = one->next) ++n;
  return n;
}

}  // namespace kvbm::device
