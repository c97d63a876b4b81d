#include "codec/lossy/symbol_contexts.h"

#include <array>
#include <cstring>

#include "codec/lossy/symbol_plane.h"

namespace kvbm::codec {
void rank_contexts(uint32_t units, uint32_t step, uint32_t* sums, std::byte* packed) noexcept {
  std::array<uint32_t, 256> below{};
  for (uint32_t u = 0; u < units; ++u) {
    sums[u] = std::min(sums[u] / step, 255U);
    ++below[sums[u]];
  }
  uint32_t total = 0;
  for (uint32_t& count : below) {
    const uint32_t here = count;
    count = total;
    total += here;
  }
  for (uint32_t u = 0; u < units; ++u) {
    const uint32_t context = below[sums[u]] * kContexts / units;
    packed[u / 4] |= static_cast<std::byte>(context << u % 4 * 2);
  }
}

void unpack_contexts(uint32_t units, const std::byte* packed, std::byte* of_units) noexcept {
  for (uint32_t u = 0; u < units; ++u) {
    of_units[u] = static_cast<std::byte>((static_cast<uint32_t>(packed[u / 4]) >> u % 4 * 2 & 3U) * kSymbols);
  }
}

namespace {

// Separate and without aliases, so that the compiler can vectorise it.
[[gnu::noinline]] void add_magnitudes(const std::byte* __restrict__ q, uint32_t n,
                                      uint32_t* __restrict__ sums) noexcept {
  for (uint32_t i = 0; i < n; ++i) sums[i] += magnitude_of(q[i]);
}

uint32_t sum_of_magnitudes(const std::byte* q, uint32_t n) noexcept {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += magnitude_of(q[i]);
  return sum;
}

}  // namespace

void choose_contexts(const ScaleMap& map, const std::byte* q, uint32_t* sums, std::byte* packed) noexcept {
  const uint32_t units = map.units();
  std::fill_n(sums, units, 0U);
  each_row(map, [&](uint32_t at, uint32_t n, uint32_t unit, uint32_t) {
    if (map.by_row) {
      sums[unit] = sum_of_magnitudes(q + at, n);
    } else {
      add_magnitudes(q + at, n, sums + unit);
    }
  });
  // Units have nearly equal numbers of values; counts in halves of a unit of magnitude.
  const uint32_t values = map.by_row ? map.row : std::max(map.head() / map.row, 1U);
  rank_contexts(units, std::max(values / 2, 1U), sums, packed);
}

void spread_contexts(const ScaleMap& map, const std::byte* packed, std::byte* of_units, std::byte* contexts) noexcept {
  unpack_contexts(map.units(), packed, of_units);
  each_row(map, [&](uint32_t at, uint32_t n, uint32_t unit, uint32_t) {
    if (map.by_row) {
      std::memset(contexts + at, static_cast<int>(of_units[unit]), n);
    } else {
      std::memcpy(contexts + at, of_units + unit, n);
    }
  });
  const uint32_t rest = map.values % kQuantizeGroup;
  if (rest != 0) std::memset(contexts + map.values, 0, kQuantizeGroup - rest);
}

}  // namespace kvbm::codec
