#include "codec/lossy/symbol_plane.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kvbm::codec {
namespace {

using Counts = std::array<uint32_t, kSymbols>;
using Lengths = std::array<uint8_t, kSymbols>;

// Depths of a Huffman tree over the symbols that occur. Deterministic on every machine, although only the lengths are
// stored.
uint32_t tree_depths(const Counts& counts, Lengths& lengths) noexcept {
  struct Node {
    uint32_t count;
    uint16_t symbols;  // symbols below it
  };
  std::array<Node, kSymbols> nodes{};
  uint32_t n = 0;
  for (uint32_t s = 0; s < kSymbols; ++s) {
    lengths[s] = 0;
    if (counts[s] != 0) nodes[n++] = {counts[s], static_cast<uint16_t>(1U << s)};
  }
  while (n > 1) {
    // Moves the two smallest to the end, by a deterministic rule: every machine builds an equal tree.
    for (uint32_t pass = 1; pass <= 2; ++pass) {
      uint32_t least = 0;
      for (uint32_t i = 1; i + pass <= n; ++i) {
        if (nodes[i].count < nodes[least].count) least = i;
      }
      std::swap(nodes[least], nodes[n - pass]);
    }
    const Node both{nodes[n - 1].count + nodes[n - 2].count,
                    static_cast<uint16_t>(nodes[n - 1].symbols | nodes[n - 2].symbols)};
    for (uint32_t s = 0; s < kSymbols; ++s) lengths[s] = static_cast<uint8_t>(lengths[s] + (both.symbols >> s & 1U));
    --n;
    nodes[n - 1] = both;
  }
  return *std::max_element(lengths.begin(), lengths.end());
}

// Returns lengths of at most kCodeLevels that fill the code exactly: counts are flattened until they do.
Lengths code_lengths(Counts counts) noexcept {
  // A code needs two symbols.
  for (uint32_t s = 0; std::count_if(counts.begin(), counts.end(), [](uint32_t c) { return c != 0; }) < 2; ++s) {
    if (counts[s] == 0) counts[s] = 1;
  }
  Lengths lengths;
  while (tree_depths(counts, lengths) > kCodeLevels) {
    for (uint32_t& count : counts) count = (count + 1) / 2;
  }
  return lengths;
}

// Counts in four tables in turn: equal symbols in a row do not wait for each other.
std::array<Counts, kContexts> count(const std::byte* symbols, const std::byte* contexts, size_t n) noexcept {
  std::array<std::array<uint32_t, kContexts * kSymbols>, 4> tables{};
  for (size_t i = 0; i < n; i += 4) {
    for (size_t t = 0; t < 4; ++t) ++tables[t][static_cast<size_t>(symbols[i + t] | contexts[i + t])];
  }
  std::array<Counts, kContexts> counts{};
  for (size_t i = 0; i < size_t{kContexts} * kSymbols; ++i) {
    counts[i / kSymbols][i % kSymbols] = tables[0][i] + tables[1][i] + tables[2][i] + tables[3][i];
  }
  return counts;
}

// Builds canonical codes: shorter ones first, then lower symbols. False: the lengths do not fill a code.
bool build_context(SymbolCode& code, uint32_t context) noexcept {
  const size_t base = size_t{context} * kSymbols;
  uint32_t next = 0;
  uint32_t rank = 0;
  for (uint32_t level = 0; level < kCodeLevels; ++level) {
    next *= 2;
    const uint32_t first = next;
    const uint32_t first_rank = rank;
    for (uint32_t s = 0; s < kSymbols; ++s) {
      if (code.length[base + s] != level + 1) continue;
      code.bits[base + s] = static_cast<uint8_t>(next++ << (7 - level));
      code.by_rank[base + rank++] = static_cast<uint8_t>(s);
    }
    if (next > 2U << level) return false;
    code.limit[level][base] = static_cast<uint8_t>(next);
    code.offset[level][base] = static_cast<uint8_t>(first_rank - first);
  }
  return next == 1U << kCodeLevels;
}

}  // namespace

size_t encode_plane(const SymbolKernel& kernel, const std::byte* symbols, const std::byte* contexts, uint32_t groups,
                    std::byte* scratch, std::byte* out, size_t room) noexcept {
  const std::array<Counts, kContexts> counts = count(symbols, contexts, size_t{groups} * kSymbolGroup);
  SymbolCode code;
  uint64_t total = 0;
  for (uint32_t c = 0; c < kContexts; ++c) {
    const Lengths lengths = code_lengths(counts[c]);
    for (uint32_t s = 0; s < kSymbols; ++s) {
      code.length[size_t{c} * kSymbols + s] = lengths[s];
      total += uint64_t{counts[c][s]} * lengths[s];
    }
    if (!build_context(code, c)) return 0;
  }
  if (kPlaneHeadBytes + total / 8 + kCodeLevels + kPlaneSlack > room) return 0;
  PlaneStreams streams;
  for (size_t l = 0; l < kCodeLevels; ++l) streams.data[l] = scratch + l * (size_t{groups} * 8 + 16);
  kernel.encode(code, symbols, contexts, groups, streams);

  std::memset(out, 0, kPlaneHeadBytes);
  for (size_t i = 0; i < code.length.size(); i += 2) {
    out[i / 2] = static_cast<std::byte>(code.length[i] | code.length[i + 1] << 4);
  }
  size_t at = kPlaneHeadBytes;
  for (size_t l = 0; l < kCodeLevels; ++l) {
    store_le(out + code.length.size() / 2 + 4 * l, streams.bits[l]);
    const size_t bytes = (streams.bits[l] + 7) / 8;
    std::memcpy(out + at, streams.data[l], bytes);
    at += bytes;
  }
  std::memset(out + at, 0, kPlaneSlack);
  return at + kPlaneSlack;
}

bool decode_plane(const SymbolKernel& kernel, ConstBytes plane, const std::byte* contexts, uint32_t groups,
                  std::byte* symbols) noexcept {
  if (plane.size() < kPlaneHeadBytes + kPlaneSlack) return false;
  SymbolCode code;
  for (size_t i = 0; i < code.length.size(); i += 2) {
    code.length[i] = static_cast<uint8_t>(plane[i / 2]) & 15U;
    code.length[i + 1] = static_cast<uint8_t>(plane[i / 2]) >> 4;
    if (std::max(code.length[i], code.length[i + 1]) > kCodeLevels) return false;
  }
  for (uint32_t c = 0; c < kContexts; ++c) {
    if (!build_context(code, c)) return false;
  }
  if (load_le<uint32_t>(plane.data() + kPlaneHeadBytes - 4) != 0) return false;
  PlaneStreams streams;
  uint64_t at = kPlaneHeadBytes;
  for (size_t l = 0; l < kCodeLevels; ++l) {
    streams.bits[l] = load_le<uint32_t>(plane.data() + code.length.size() / 2 + 4 * l);
    streams.data[l] = const_cast<std::byte*>(plane.data() + at);
    at += (uint64_t{streams.bits[l]} + 7) / 8;
    if (at + kPlaneSlack > plane.size()) return false;
  }
  return kernel.decode(code, streams, contexts, groups, symbols);
}

namespace {

void put_bit(std::byte* data, uint32_t at, uint32_t bit) noexcept {
  if (at % 8 == 0) data[at / 8] = std::byte{0};
  data[at / 8] |= static_cast<std::byte>(bit << at % 8);
}

void encode(const SymbolCode& code, const std::byte* symbols, const std::byte* contexts, uint32_t groups,
            PlaneStreams& streams) noexcept {
  for (size_t i = 0; i < size_t{groups} * kSymbolGroup; ++i) {
    const size_t index = static_cast<size_t>(contexts[i] | symbols[i]);
    for (uint32_t l = 0; l < code.length[index]; ++l) {
      put_bit(streams.data[l], streams.bits[l]++, code.bits[index] >> (7 - l) & 1U);
    }
  }
}

bool decode(const SymbolCode& code, const PlaneStreams& streams, const std::byte* contexts, uint32_t groups,
            std::byte* symbols) noexcept {
  std::array<uint32_t, kCodeLevels> at{};
  for (size_t i = 0; i < size_t{groups} * kSymbolGroup; ++i) {
    const auto context = static_cast<size_t>(contexts[i]);
    uint32_t read = 0;
    for (size_t l = 0; l < kCodeLevels; ++l) {  // a code that fills ends at the last level at the latest
      if (at[l] >= streams.bits[l]) return false;
      read = read * 2 + (static_cast<uint32_t>(streams.data[l][at[l] / 8]) >> at[l] % 8 & 1U);
      ++at[l];
      if (read >= code.limit[l][context]) continue;
      symbols[i] = static_cast<std::byte>(code.by_rank[context + static_cast<uint8_t>(read + code.offset[l][context])]);
      break;
    }
  }
  return at == streams.bits;
}

constexpr SymbolKernel kKernel{"portable", encode, decode};

}  // namespace

const SymbolKernel& portable_symbol_kernel() noexcept { return kKernel; }

}  // namespace kvbm::codec
