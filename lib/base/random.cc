#include "base/random.h"

#include <sys/random.h>

#include <cstring>

#include "base/clock.h"

namespace kvbm {

void Random::fill(std::span<std::byte> out) noexcept {
  while (!out.empty()) {
    const uint64_t v = next();
    const size_t n = out.size() < sizeof v ? out.size() : sizeof v;
    std::memcpy(out.data(), &v, n);
    out = out.subspan(n);
  }
}

uint64_t Random::below(uint64_t bound) noexcept {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
}

uint64_t SystemRandom::next() noexcept {
  uint64_t v = 0;
  if (getrandom(&v, sizeof v, 0) == sizeof v) return v;
  // getrandom cannot fail for 8 bytes on a booted system; creation ids need only be distinct.
  return SystemClock{}.now_ns() * 0x9E3779B97F4A7C15ULL;
}

uint64_t SeededRandom::next() noexcept {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

}  // namespace kvbm
