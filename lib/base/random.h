// Randomness comes from an injected source, so that a simulation replays from its seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvbm {

class Random {
 public:
  virtual ~Random() = default;
  // Thread: any.
  virtual uint64_t next() noexcept = 0;
  void fill(std::span<std::byte> out) noexcept;
  // Uniform in [0, bound); bound > 0. Bias is below 2^-32 for bounds below 2^32.
  uint64_t below(uint64_t bound) noexcept;
};

// getrandom(2).
class SystemRandom final : public Random {
 public:
  uint64_t next() noexcept override;
};

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): small, seedable, equidistributed. Not thread-safe.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) noexcept : state_(seed) {}
  uint64_t next() noexcept override;

 private:
  uint64_t state_;
};

}  // namespace kvbm
