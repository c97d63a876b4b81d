// Interface of an instruction set for the leaf hash: whole rows, hashed and optionally stored in the same pass. The
// part that every instruction set shares (order of pieces, tail, end) is in leaf_hash.cc; the formula is in
// lib/codec/README.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::codec {

inline constexpr size_t kLanes = 32;
inline constexpr size_t kRowBytes = kLanes * sizeof(uint64_t);
inline constexpr size_t kChunkBytes = 64;  // a quarter of a row: fast only if pieces are multiples of it
inline constexpr uint64_t kRowsPerScramble = 16;
inline constexpr uint64_t kRowStep = 0xD1342543DE82EF95ULL;       // odd
inline constexpr uint64_t kScrambleFactor = 0x9E3779B1U;          // XXH_PRIME32_1
inline constexpr uint64_t kLengthFactor = 0x9E3779B185EBCA87ULL;  // XXH_PRIME64_1

// Constant n is output n of SplitMix64 seeded with 0, so a GPU lane can compute its own.
constexpr uint64_t leaf_hash_constant(uint64_t n) noexcept {
  uint64_t z = (n + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

using LaneTable = std::array<uint64_t, kLanes>;
constexpr LaneTable leaf_hash_table(uint64_t first) noexcept {
  LaneTable table{};
  for (size_t lane = 0; lane < kLanes; ++lane) table[lane] = leaf_hash_constant(first + lane);
  return table;
}
alignas(64) inline constexpr LaneTable kLaneStart = leaf_hash_table(0);
alignas(64) inline constexpr LaneTable kLaneKey = leaf_hash_table(kLanes);
alignas(64) inline constexpr LaneTable kLaneScramble = leaf_hash_table(2 * kLanes);
alignas(64) inline constexpr LaneTable kLaneMerge = leaf_hash_table(3 * kLanes);

static_assert(sizeof(LeafState::lanes) == kRowBytes);

// How a kernel writes. `stream` passes the caches and needs 64-byte aligned pieces, `stream16` does so if the target is
// only 16-byte aligned (as from malloc); `none` only hashes. Streamed stores are not ordered: order_copies()
// (leaf_hash.h) does that after the last row.
enum class Store : uint8_t { none, cached, stream, stream16 };

// A position in a list of pieces. It is never at a piece of length 0, except at the end of the list.
struct Walk {
  std::byte* at = nullptr;
  uint64_t left = 0;  // bytes of this piece still to come; 0 = the list has ended
  const StridedRun* run = nullptr;
  const StridedRun* end = nullptr;
  uint32_t i = 0;
  uint32_t j = 0;

  void enter() noexcept {  // moves to the first piece of the first non-empty run at or after `run`
    for (; run != end; ++run) {
      if (run->total() == 0) continue;
      i = j = 0;
      at = run->data;
      left = run->bytes;
      return;
    }
    left = 0;
  }

  void next_piece() noexcept {
    if (run == end) {
      left = 0;
      return;
    }
    if (++j == run->count1) {
      j = 0;
      if (++i == run->count0) {
        ++run;
        enter();
        return;
      }
    }
    at = run->data + static_cast<int64_t>(i) * run->stride0 + static_cast<int64_t>(j) * run->stride1;
    left = run->bytes;
  }

  void advance(uint64_t bytes) noexcept {  // bytes <= left
    at += bytes;
    left -= bytes;
    if (left == 0) next_piece();
  }

  // Returns the next chunk of a list with pieces that are all multiples of kChunkBytes.
  std::byte* take_chunk() noexcept {
    std::byte* chunk = at;
    advance(kChunkBytes);
    return chunk;
  }
};

// Cache that lines of paged memory, and of a target that is to stay, are prefetched into ahead of a copy. More of them
// can be in flight into the second level. On Zen 4, using the first level costs a gather of 1 to 16 KiB pieces a sixth
// to a third of its speed. Prefetching lines that the hardware fetches by itself costs a tenth of a copy through the
// caches.
enum class Ask : uint8_t { first_level, second_level };

struct Kernel {
  const char* name;
  // Takes `count` rows out of `from` and, unless store is none, writes them to `to`. All pieces are multiples of
  // kChunkBytes (a row is taken chunk by chunk if a piece ends inside it).
  void (*rows)(LeafState& state, Walk& to, Walk& from, uint64_t count, Store store) noexcept;
};

// Each returns null if this machine lacks the instructions.
const Kernel* portable_kernel() noexcept;
const Kernel* avx2_kernel(Ask ask) noexcept;
const Kernel* avx512_kernel(Ask ask) noexcept;

}  // namespace kvbm::codec
