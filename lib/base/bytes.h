// Unaligned little-endian loads and stores for formats, and the one rounding rule.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace kvbm {

static_assert(std::endian::native == std::endian::little,
              "formats are little-endian; a big-endian port must swap here");

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

template <std::integral T>
T load_le(const std::byte* p) noexcept {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <std::integral T>
void store_le(std::byte* p, T v) noexcept {
  std::memcpy(p, &v, sizeof v);
}

// Fields one after the other: these move `p` behind the field.
template <std::integral T>
void put_le(std::byte*& p, T v) noexcept {
  store_le(p, v);
  p += sizeof v;
}

template <std::integral T>
T take_le(const std::byte*& p) noexcept {
  const T v = load_le<T>(p);
  p += sizeof v;
  return v;
}

// Smallest multiple of `step` (a power of two) that is not below `v`.
constexpr uint64_t round_up(uint64_t v, uint64_t step) noexcept { return (v + step - 1) & ~(step - 1); }

// A run of memory with two levels of repetition: `count0 * count1` pieces of `bytes` each, piece (i, j) at data + i *
// stride0 + j * stride1. It describes a layer of a paged cache in a few numbers.
struct StridedRun {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint32_t count0 = 1;
  uint32_t count1 = 1;
  int64_t stride0 = 0;
  int64_t stride1 = 0;
  [[nodiscard]] uint64_t total() const noexcept { return bytes * count0 * count1; }
};

}  // namespace kvbm
