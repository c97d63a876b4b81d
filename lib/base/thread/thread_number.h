// A small number for each thread, in the order of their first calls: for spreading threads over shared parts. Not an
// identity: numbers are never reused, but threads should differ in the part that they use only, not in their behaviour.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvbm {

[[nodiscard]] inline uint32_t thread_number() noexcept {
  static std::atomic<uint32_t> next{0};
  thread_local const uint32_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace kvbm
