#include "base/clock.h"

#include <ctime>

namespace kvbm {

uint64_t SystemClock::now_ns() const noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000ULL + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace kvbm
