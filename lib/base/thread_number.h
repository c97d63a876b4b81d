// A small number for each thread, in the order in which they first ask: for spreading threads over what they share.
// Not an identity: numbers are never given twice, but nobody should act differently on who it is, only on where it goes.
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
