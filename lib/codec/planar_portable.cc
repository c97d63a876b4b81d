// Planar blocks in plain C++.
#include <cstring>

#include "codec/planar_kernel.h"

namespace kvbm::codec {
namespace {

// pdep and pext by six moves of 2^k bits each (Hacker's Delight, 7-4 and 7-5): no loop over bits, whose end no branch
// predictor knows.
struct Moves {
  uint64_t of[6];
};

inline Moves moves_for(uint64_t mask) noexcept {
  Moves moves;
  uint64_t left = ~mask << 1;
  for (uint32_t k = 0; k < 6; ++k) {
    uint64_t odd = left ^ left << 1;  // how many zeros are to the right of each bit, modulo 2
    odd ^= odd << 2;
    odd ^= odd << 4;
    odd ^= odd << 8;
    odd ^= odd << 16;
    odd ^= odd << 32;
    const uint64_t move = odd & mask;
    moves.of[k] = move;
    mask = (mask ^ move) | move >> (1U << k);
    left &= ~odd;
  }
  return moves;
}

inline uint64_t deposit(uint64_t bits, uint64_t mask) noexcept {
  const Moves moves = moves_for(mask);
  for (uint32_t k = 6; k-- > 0;) {
    const uint64_t move = moves.of[k];
    bits = (bits & ~move) | (bits << (1U << k) & move);
  }
  return bits & mask;
}

inline uint64_t extract(uint64_t word, uint64_t mask) noexcept {
  const Moves moves = moves_for(mask);
  word &= mask;
  for (uint32_t k = 0; k < 6; ++k) {
    const uint64_t moved = word & moves.of[k];
    word = (word ^ moved) | moved >> (1U << k);
  }
  return word;
}

#include "codec/planar_words.inc"

constexpr PlanarKernel kKernel{"portable", encode_blocks, decode_blocks};

}  // namespace

const PlanarKernel* planar_portable() noexcept { return &kKernel; }

}  // namespace kvbm::codec
