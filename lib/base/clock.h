// Time comes from an injected clock, so that a simulation can own it.
#pragma once

#include <cstdint>

namespace kvbm {

// Stands for a deadline that never passes.
inline constexpr uint64_t kNever = UINT64_MAX;

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic nanoseconds; the zero point is arbitrary. Thread: any.
  [[nodiscard]] virtual uint64_t now_ns() const noexcept = 0;
};

// CLOCK_MONOTONIC.
class SystemClock final : public Clock {
 public:
  [[nodiscard]] uint64_t now_ns() const noexcept override;
};

// now + timeout without overflow; a timeout of kNever stays kNever.
inline uint64_t deadline_after(const Clock& clock, uint64_t timeout_ns) noexcept {
  if (timeout_ns == kNever) return kNever;
  const uint64_t now = clock.now_ns();
  return timeout_ns > kNever - 1 - now ? kNever - 1 : now + timeout_ns;
}

}  // namespace kvbm
