// Randomness comes from an injected source, so that a simulation replays from its seed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace kvbm {

class Random {
 public:
  virtual ~Random() = default;
  // Thread: any.
  virtual uint64_t next() noexcept = 0;
  // Fills `out` with values of next(), eight bytes each.
  virtual void fill(std::span<std::byte> out) noexcept;
  // Uniform in [0, bound); bound > 0. Bias is below 2^-32 for bounds below 2^32.
  uint64_t below(uint64_t bound) noexcept;
};

// getrandom(2). Nonces are made from it, so a system that returns nothing is an error at start (ready()). If it refuses
// later, as a filter of system calls may, numbers are derived by HMAC-SHA256 from what it returned at first: they are
// unpredictable, and independent of each other.
class SystemRandom final : public Random {
 public:
  SystemRandom() noexcept;
  // io_error if the system returned nothing: then nothing may be made from this. Callers check it at start.
  [[nodiscard]] Status ready() const;
  uint64_t next() noexcept override;

 private:
  std::array<uint8_t, 32> seed_{};
  int error_ = 0;
  std::atomic<uint64_t> count_{0};
};

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): small, seedable, equidistributed. Not thread-safe.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) noexcept : state_(seed) {}
  uint64_t next() noexcept override { return step(); }
  void fill(std::span<std::byte> out) noexcept override;

 private:
  uint64_t step() noexcept {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

}  // namespace kvbm
