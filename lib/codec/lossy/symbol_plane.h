// Codes symbols of 4 bits, each in one of four contexts with a Huffman code of its own, at most 7 bits long. Used for
// the top bits of quantised values and the differences of delta leaves. Format: codec/README.md, "Symbol planes".
//
// Bit l of the codes of 64 symbols, if they have one, lies in stream l. So a machine with pext and pdep codes 64
// symbols a step, and no symbol depends on the one before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace kvbm::codec {

inline constexpr uint32_t kSymbols = 16;
inline constexpr uint32_t kContexts = 4;
inline constexpr uint32_t kCodeLevels = 7;
inline constexpr uint32_t kSymbolGroup = 64;
// Lengths of the codes, then of the streams.
inline constexpr size_t kPlaneHeadBytes = kContexts * kSymbols / 2 + kCodeLevels * sizeof(uint32_t) + 4;
static_assert(kPlaneHeadBytes == kSymbolGroup);
// Bytes behind the streams, since a reader reads whole words.
inline constexpr size_t kPlaneSlack = 32;

// Tables are indexed by context * 16 + symbol.
using SymbolTable = std::array<uint8_t, size_t{kContexts} * kSymbols>;
struct SymbolCode {
  alignas(64) SymbolTable length{};  // 0: the symbol has no code
  alignas(64) SymbolTable bits{};    // the code, from the top bit down
  // For decoding: level l, context c. A code read up to level l is complete if it is below limit[l][16 c]; its rank is
  // then code + offset[l][16 c], and its symbol by_rank[16 c + rank].
  alignas(64) std::array<SymbolTable, kCodeLevels> limit{};
  alignas(64) std::array<SymbolTable, kCodeLevels> offset{};
  alignas(64) SymbolTable by_rank{};
};

// Streams of the levels, written by encode() and only read by decode().
struct PlaneStreams {
  std::array<std::byte*, kCodeLevels> data{};
  std::array<uint32_t, kCodeLevels> bits{};  // sizes
};

struct SymbolKernel {
  const char* name;
  // `symbols`: a symbol a byte; `contexts`: 16 times the context of each.
  void (*encode)(const SymbolCode& code, const std::byte* symbols, const std::byte* contexts, uint32_t groups,
                 PlaneStreams& streams) noexcept;
  // False: the streams end before the symbols, or go on behind them. Each may be read kPlaneSlack bytes past its end.
  bool (*decode)(const SymbolCode& code, const PlaneStreams& streams, const std::byte* contexts, uint32_t groups,
                 std::byte* symbols) noexcept;
};
const SymbolKernel& portable_symbol_kernel() noexcept;
const SymbolKernel* avx512_symbol_kernel() noexcept;

// Bytes of scratch that encode_plane() needs for `groups` groups.
constexpr size_t plane_scratch(uint32_t groups) noexcept { return kCodeLevels * (size_t{groups} * 8 + 16); }

// Writes a plane of at most `room` bytes and returns its size, with the slack; 0: it needs more.
size_t encode_plane(const SymbolKernel& kernel, const std::byte* symbols, const std::byte* contexts, uint32_t groups,
                    std::byte* scratch, std::byte* out, size_t room) noexcept;
// `plane` is the rest of the leaf; false: encode_plane() never made it.
bool decode_plane(const SymbolKernel& kernel, ConstBytes plane, const std::byte* contexts, uint32_t groups,
                  std::byte* symbols) noexcept;

}  // namespace kvbm::codec
