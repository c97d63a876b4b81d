// Decodes blocks of 64 elements of a planar leaf with a warp: 32 blocks at a time, in two steps.
//
// Codes, one block a lane: level by level, the elements that are still undecided are one mask a block, as on the CPU.
// The start of each block's bits in the stream is a sum over the lanes below. So the serial chain of the CPU's decoder,
// one addition a stream and block, is one a stream and 32 blocks.
// Values, one lane for the elements of 16 plain bytes: bits of the planes are spread to bytes, looked up, and joined
// with the bytes that are stored as they are.
#pragma once

#include "device/kernels/planar_leaf.cuh"

namespace kvbm::device::kernels {

constexpr uint32_t kChunkBlocks = 32;
constexpr uint32_t kDirectCodes = 256;

// Working state of one warp, in shared memory.
struct PlanarRoom {
  CodedHeader header;
  PlanarLeaf leaf;  // read where it is needed: in registers of every lane it would cost a third of the warps
  StripeSlot slot;
  uint64_t planes[kPlanarLevels + kPlanarRests][kChunkBlocks];  // levels of the codes, then the rests
  uint64_t escaped[kChunkBlocks];
  uint32_t escapes_before[kChunkBlocks];
  uint8_t direct[kPlanarClasses * kDirectCodes];  // symbol of class and code
};

// Moves the low bits of `bits`, in their order, to the places of the ones of `mask`, like pdep. Steele's expand
// (Warren's book, second edition, 7-5): each step moves the bits with a place that much higher. A sum of zeros of the
// mask, mod 2, selects them.
__device__ __forceinline__ uint32_t deposit32(uint32_t bits, uint32_t mask) {
  uint32_t moved[5];
  uint32_t left = mask;
  uint32_t zeros = ~mask << 1;
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    uint32_t odd = zeros ^ zeros << 1;
    odd ^= odd << 2;
    odd ^= odd << 4;
    odd ^= odd << 8;
    odd ^= odd << 16;
    moved[i] = odd & left;
    left = (left ^ moved[i]) | moved[i] >> (1 << i);
    zeros &= ~odd;
  }
#pragma unroll
  for (int i = 4; i >= 0; --i) bits = (bits & ~moved[i]) | (bits << (1 << i) & moved[i]);
  return bits & mask;
}

__device__ __forceinline__ uint64_t deposit64(uint64_t bits, uint64_t mask) {
  const auto low_mask = static_cast<uint32_t>(mask);
  const uint32_t low = deposit32(static_cast<uint32_t>(bits), low_mask);
  const uint32_t high = deposit32(static_cast<uint32_t>(bits >> __popc(low_mask)), static_cast<uint32_t>(mask >> 32));
  return word_of(low, high);
}

// Returns 64 bits of a stream of words, from bit `at` on; reads two words.
__device__ __forceinline__ uint64_t take_bits(uint64_t stream, uint32_t at) {
  const uint64_t word = stream + at / 64 * 8;
  const uint32_t shift = at % 64;
  return get64(word) >> shift | get64(word + 8) << 1 << (63 - shift);
}

// Returns the elements of a block with a code of more than l bits: their known bits are at least the limit.
__device__ __forceinline__ uint64_t undecided(const PlanarLeaf& leaf, const PlanarRoom& room, uint32_t l, uint32_t lane) {
  const auto limit = static_cast<uint32_t>(leaf.limits >> (8 * l));
  uint64_t above = ~uint64_t{0};
  for (uint32_t j = l; j-- > 0;) {
    const uint64_t plane = room.planes[j][lane];
    above = (limit >> (kPlanarLevels - 1 - j) & 1) != 0 ? plane & above : plane | above;
  }
  return above;
}

// Fills in the symbols of every class and code. No index leaves the table, whatever the map of classes holds.
__device__ inline void planar_tables(const PlanarLeaf& leaf, const PlanarLane& mine, uint32_t lane, PlanarRoom& room) {
  for (uint32_t i = lane; i < kPlanarClasses * kDirectCodes; i += 32) room.direct[i] = 0;
  __syncwarp();
  if (lane + 1 < leaf.codes) {
    for (uint32_t k = 0; k < leaf.classes; ++k) {
      const uint32_t symbol = get8(leaf.at + leaf.tables + k * (leaf.codes - 1) + lane);
      room.direct[k * kDirectCodes + mine.code] = static_cast<uint8_t>(symbol);
    }
  }
  __syncwarp();
}

// Returns whether every class in the map is one of the leaf's; all lanes get one answer.
__device__ inline bool planar_classes_known(const PlanarLeaf& leaf, uint32_t lane) {
  bool good = true;
  for (uint32_t i = lane; i < leaf.vectors * (kPlanarBlock / 4); i += 32) {
    const uint32_t four = get8(leaf.at + kHeaderBytes + i);
    for (uint32_t j = 0; j < 4; ++j) good = good && (four >> (2 * j) & 3) < leaf.classes;
  }
  return __all_sync(kAllLanes, good) != 0;
}

// Reads codes, rests and escapes of blocks [first, first + 32). No stream is read beyond 8 bytes a block of the leaf
// and 8 more, and the rests or lower bytes behind all streams are longer than that.
__device__ inline void planar_codes(const PlanarLeaf& leaf, uint32_t first, uint32_t lane, PlanarLane& mine,
                                    uint32_t& escapes, PlanarRoom& room) {
  const uint32_t block = first + lane;
  const bool inside = block < leaf.blocks;
  uint64_t escaped = inside ? ~uint64_t{0} : 0;
  uint32_t total = 0;
  __syncwarp();  // all lanes are done with the blocks before
  for (uint32_t l = 0; l < leaf.levels; ++l) {
    const uint64_t stream = leaf.at + __shfl_sync(kAllLanes, mine.stream, static_cast<int>(l));
    uint64_t plane = 0;
    if (l < leaf.full) {
      if (inside) plane = get64(stream + 8 * block);
    } else {
      const uint64_t open = inside ? undecided(leaf, room, l, lane) : 0;
      const uint32_t taken = __shfl_sync(kAllLanes, mine.ends, static_cast<int>(l));
      const uint32_t begin = taken + sum_below(static_cast<uint32_t>(__popcll(open)), lane, total);
      if (open != 0) plane = deposit64(take_bits(stream, begin), open);
      if (lane == l) mine.ends += total;
    }
    room.planes[l][lane] = plane;
    escaped &= plane;
  }
  for (uint32_t b = 0; b < leaf.rest_bits; ++b) {
    const uint64_t at = leaf.at + leaf.bits + 8 * (block * leaf.rest_bits + b);
    room.planes[kPlanarLevels + b][lane] = inside ? get64(at) : 0;
  }
  room.escaped[lane] = escaped;
  room.escapes_before[lane] = escapes + sum_below(static_cast<uint32_t>(__popcll(escaped)), lane, total);
  escapes += total;
  __syncwarp();
}

// Spreads each of four bits to the lowest bit of a byte.
__device__ __forceinline__ uint32_t spread(uint32_t four) { return (four & 15) * 0x00204081U & 0x01010101U; }

// A lane's share in one step: the elements of 16 bytes, four to a group.
template <uint32_t kWidth>
struct PlanarPart {
  static constexpr uint32_t kValues = 16 / kWidth;
  static constexpr uint32_t kGroups = kValues / 4;
  static constexpr uint32_t kBlocksOfWarp = 32 * kValues / kPlanarBlock;
  uint32_t tops[kGroups];  // a byte an element
};

// Returns bits [first, first + kValues) of a block's plane.
template <uint32_t kWidth>
__device__ __forceinline__ uint32_t plane_bits(const PlanarRoom& room, uint32_t plane, uint32_t column, uint32_t first) {
  const auto mask = static_cast<uint32_t>((uint64_t{1} << PlanarPart<kWidth>::kValues) - 1);
  return static_cast<uint32_t>(room.planes[plane][column] >> first) & mask;
}

// Gives the escaped ones of a lane's elements the next bytes of the escapes.
template <uint32_t kWidth>
__device__ inline void planar_escapes(const PlanarLeaf& leaf, const PlanarRoom& room, uint32_t column, uint32_t first,
                                      uint32_t escaped, PlanarPart<kWidth>& part) {
  const uint64_t below = room.escaped[column] & ((uint64_t{1} << first) - 1);
  uint32_t at = room.escapes_before[column] + static_cast<uint32_t>(__popcll(below));
#pragma unroll
  for (uint32_t i = 0; i < PlanarPart<kWidth>::kValues; ++i) {
    if ((escaped >> i & 1) == 0) continue;
    const uint32_t symbol = at < leaf.escapes ? get8(leaf.at + leaf.escapes_at + at) : 0;
    part.tops[i / 4] = (part.tops[i / 4] & ~(0xFFU << (8 * (i % 4)))) | symbol << (8 * (i % 4));
    ++at;
  }
}

// Returns two bits for each of a lane's elements, which begin at element `first` of a block.
template <uint32_t kWidth>
__device__ __forceinline__ uint32_t planar_classes(const PlanarLeaf& leaf, uint32_t block, uint32_t first) {
  if (leaf.vectors == 0) return 0;
  const uint32_t group = block / leaf.group;
  const uint32_t vector = group * leaf.period + (block - group * leaf.group) % leaf.period;
  const uint64_t at = leaf.at + kHeaderBytes + vector * (kPlanarBlock / 4) + first / 4;
  if (kWidth == 1) return get32(at);
  return kWidth == 2 ? get16(at) : get8(at);
}

template <uint32_t kWidth>
__device__ inline void planar_tops(const PlanarLeaf& leaf, const PlanarRoom& room, uint32_t block, uint32_t first,
                                   PlanarPart<kWidth>& part) {
  constexpr uint32_t kGroups = PlanarPart<kWidth>::kGroups;
  const uint32_t column = block % kChunkBlocks;
  uint32_t codes[kGroups] = {};
  uint32_t escaped = ~0U;
  for (uint32_t l = 0; l < leaf.levels; ++l) {
    const uint32_t bits = plane_bits<kWidth>(room, l, column, first);
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) codes[g] = codes[g] << 1 | spread(bits >> (4 * g));
    escaped &= bits;
  }
  const uint32_t classes = planar_classes<kWidth>(leaf, block, first);
#pragma unroll
  for (uint32_t g = 0; g < kGroups; ++g) {
    part.tops[g] = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t of_class = (classes >> (8 * g + 2 * i) & 3) * kDirectCodes;
      part.tops[g] |= uint32_t{room.direct[of_class + (codes[g] >> (8 * i) & 0xFF)]} << (8 * i);
    }
  }
  if (escaped != 0) planar_escapes<kWidth>(leaf, room, column, first, escaped, part);
  for (uint32_t b = 0; b < leaf.rest_bits; ++b) {
    const uint32_t bits = plane_bits<kWidth>(room, kPlanarLevels + b, column, first);
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) part.tops[g] = (part.tops[g] & 0x7F7F7F7FU) << 1 | spread(bits >> (4 * g));
  }
}

// Turns elements, which were turned left by one bit, back. Here two of 16 bits, from the low bytes of both arguments.
__device__ __forceinline__ uint32_t join16(uint32_t low, uint32_t top) {
  const uint32_t both = __byte_perm(low, top, 0x5140);
  return (both >> 1 & 0x7FFF7FFFU) | (both & 0x00010001U) << 15;
}
__device__ __forceinline__ uint32_t join8(uint32_t tops) { return (tops >> 1 & 0x7F7F7F7FU) | (tops & 0x01010101U) << 7; }
__device__ __forceinline__ uint32_t join32(const uint32_t (&lower)[3], uint32_t tops, uint32_t i) {
  uint32_t v = (tops >> (8 * i)) << 24;
#pragma unroll
  for (uint32_t p = 0; p < 3; ++p) v |= (lower[p] >> (8 * i) & 0xFF) << (8 * p);
  return v >> 1 | v << 31;
}

// Joins tops with the lower bytes of their elements, of which the first is `value` of the leaf.
__device__ __forceinline__ uint4 planar_join(const PlanarLeaf&, uint32_t, const PlanarPart<1>& part) {
  return make_uint4(join8(part.tops[0]), join8(part.tops[1]), join8(part.tops[2]), join8(part.tops[3]));
}
// Returns the lower bytes of 8 elements that are stored without their last bits: a word of a block's seven, or the
// eighth, made of these bits.
__device__ inline uint64_t packed_lower(const PlanarLeaf& leaf, uint32_t value) {
  constexpr uint64_t kOnes = 0x0101010101010101ULL;
  const uint64_t block = leaf.at + leaf.planes + value / kPlanarBlock * kPackedBlock;
  const uint32_t eighth = value % kPlanarBlock / 8;
  if (eighth < 7) return get64(block + 8 * eighth) & ~kOnes;
  uint64_t lower = 0;
#pragma unroll
  for (uint32_t k = 0; k < 7; ++k) lower |= (get64(block + 8 * k) & kOnes) << (k + 1);
  return lower;
}

__device__ __forceinline__ uint4 planar_join(const PlanarLeaf& leaf, uint32_t value, const PlanarPart<2>& part) {
  const uint64_t lower = leaf.packed != 0 ? packed_lower(leaf, value) : get64(leaf.at + leaf.planes + value);
  const auto low = static_cast<uint32_t>(lower);
  const auto high = static_cast<uint32_t>(lower >> 32);
  return make_uint4(join16(low, part.tops[0]), join16(low >> 16, part.tops[0] >> 16), join16(high, part.tops[1]),
                    join16(high >> 16, part.tops[1] >> 16));
}
__device__ __forceinline__ uint4 planar_join(const PlanarLeaf& leaf, uint32_t value, const PlanarPart<4>& part) {
  uint32_t lower[3];
#pragma unroll
  for (uint32_t p = 0; p < 3; ++p) lower[p] = get32(leaf.at + leaf.planes + p * (leaf.blocks * kPlanarBlock) + value);
  return make_uint4(join32(lower, part.tops[0], 0), join32(lower, part.tops[0], 1), join32(lower, part.tops[0], 2),
                    join32(lower, part.tops[0], 3));
}

// Returns plain bytes [offset, offset + 16) behind the last whole block, which are stored as they are; zeros behind the
// end.
__device__ inline uint4 planar_tail(const PlanarLeaf& leaf, uint32_t offset) {
  const uint32_t coded = leaf.blocks * kPlanarBlock * leaf.width;
  uint32_t words[4] = {};
#pragma unroll
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t byte = offset + i;
    if (byte < leaf.raw) words[i / 4] |= get8(leaf.at + leaf.tail + (byte - coded)) << (8 * (i % 4));
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Returns a lane's vector `n`: plain bytes [512 n + 16 lane, ..). planar_codes() was called for its block.
template <uint32_t kWidth>
__device__ inline uint4 planar_vector(const PlanarLeaf& leaf, const PlanarRoom& room, uint32_t n, uint32_t lane) {
  using Part = PlanarPart<kWidth>;
  const uint32_t value = (32 * n + lane) * Part::kValues;
  if (value / kPlanarBlock >= leaf.blocks) return planar_tail(leaf, value * kWidth);
  Part part;
  planar_tops<kWidth>(leaf, room, value / kPlanarBlock, value % kPlanarBlock, part);
  return planar_join(leaf, value, part);
}

// Decodes the whole leaf to `to`; false: streams or escapes do not end where the header says.
template <uint32_t kWidth>
__device__ inline bool planar_decode(const PlanarLeaf& leaf, PlanarLane mine, const PlainSide& to, uint32_t lane,
                                     PlanarRoom& room, WarpHash& hash) {
  constexpr uint32_t kOfChunk = kChunkBlocks / PlanarPart<kWidth>::kBlocksOfWarp;
  uint32_t escapes = 0;
  planar_tables(leaf, mine, lane, room);
  for (uint32_t n = 0; n * kWarpBytes < leaf.raw; ++n) {
    if (n % kOfChunk == 0) planar_codes(leaf, n / kOfChunk * kChunkBlocks, lane, mine, escapes, room);
    const uint4 vector = planar_vector<kWidth>(leaf, room, n, lane);
    put_vector(to, n * kWarpBytes + 16 * lane, vector);
    hash.take(vector, room.slot, lane);
  }
  const bool as_said = lane >= leaf.levels || lane < leaf.full || (mine.ends + 63) / 64 == mine.words;
  return __all_sync(kAllLanes, as_said) != 0 && escapes == leaf.escapes;
}

}  // namespace kvbm::device::kernels
