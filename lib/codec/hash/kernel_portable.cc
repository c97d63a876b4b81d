// Rows in plain C++, for machines without AVX2, and as a cross-check in tests.
#include <cstring>

#include "codec/hash/kernel.h"

namespace kvbm::codec {
namespace {

void read_row(Walk& from, uint64_t (&words)[kLanes]) noexcept {
  for (size_t at = 0; at < kLanes; at += kChunkBytes / 8) std::memcpy(words + at, from.take_chunk(), kChunkBytes);
}

void write_row(Walk& to, const uint64_t (&words)[kLanes]) noexcept {
  for (size_t at = 0; at < kLanes; at += kChunkBytes / 8) std::memcpy(to.take_chunk(), words + at, kChunkBytes);
}

void scramble(uint64_t (&lanes)[kLanes]) noexcept {
  for (size_t l = 0; l < kLanes; ++l) {
    lanes[l] = (lanes[l] ^ (lanes[l] >> 47) ^ kLaneScramble[l]) * kScrambleFactor;
  }
}

// A row is read once, into `words`: hash and store use that copy. Plain stores only.
void rows(LeafState& state, Walk& to, Walk& from, uint64_t count, Store store) noexcept {
  for (uint64_t n = 0; n < count; ++n) {
    uint64_t words[kLanes];
    read_row(from, words);
    if (store != Store::none) write_row(to, words);
    const uint64_t step = state.row * kRowStep;
    for (size_t l = 0; l < kLanes; ++l) {
      const uint64_t mixed = words[l] ^ (kLaneKey[l] + step);
      state.lanes[l] += (mixed & UINT32_MAX) * (mixed >> 32) + words[l ^ 1];
    }
    if (++state.row % kRowsPerScramble == 0) scramble(state.lanes);
  }
}

constexpr Kernel kKernel{"portable", rows};

}  // namespace

const Kernel* portable_kernel() noexcept { return &kKernel; }

}  // namespace kvbm::codec
