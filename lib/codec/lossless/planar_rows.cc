#include "codec/lossless/planar_rows.h"

#include <algorithm>
#include <cstring>

#include "codec/leaf/frame.h"

namespace kvbm::codec {
namespace {

constexpr uint32_t kLookedAt = 128;  // rows of the first check
constexpr uint32_t kSlots = 4096;    // twice as many as rows
constexpr uint32_t kFewSlots = 512;
constexpr uint16_t kNone = UINT16_MAX;

// Most collisions per row. Different rows must differ in the hashed bytes: with more collisions than this, comparing
// rows would take too long.
constexpr uint32_t kMostMeetings = 4;

// Hashes 16 bytes each of the beginning, the middle and the end: channels that are equal in all rows, mostly zeros, lie
// together.
uint32_t hash_of(const std::byte* row, size_t row_bytes) noexcept {
  constexpr size_t kWords = 6;
  constexpr uint64_t kFactors[kWords] = {0x9E3779B185EBCA87, 0xD1342543DE82EF95, 0xA0761D6478BD642F,
                                         0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3};
  uint64_t words[kWords];
  std::memcpy(words, row, 16);
  std::memcpy(words + 2, row + (row_bytes - 16) / 2, 16);
  std::memcpy(words + 4, row + row_bytes - 16, 16);
  uint64_t mixed = 0;
  for (size_t i = 0; i < kWords; ++i) mixed ^= words[i] * kFactors[i];
  return static_cast<uint32_t>(mixed >> 40);
}

// Counts how many of some evenly taken rows begin like an earlier one; hash collisions of different rows hide some.
uint32_t likely_repeats(const std::byte* raw, uint32_t rows, uint32_t row_bytes) noexcept {
  uint32_t seen[kFewSlots] = {};
  uint32_t repeats = 0;
  for (uint32_t i = 0; i < std::min(rows, kLookedAt); ++i) {
    // Irregular distances: repetitions may be regular, too.
    const uint32_t apart = std::max(1U, rows / kLookedAt);
    const size_t r = size_t{i} * apart + i % apart;
    const uint32_t hash = hash_of(raw + r * row_bytes, row_bytes) | 1;
    uint32_t& slot = seen[hash / 2 % kFewSlots];
    repeats += slot == hash;
    slot = hash;
  }
  return repeats;
}

}  // namespace

bool find_equal_rows(const LeafForm& form, ConstBytes raw, LeafRows& found, std::byte* rows_out) noexcept {
  const uint64_t row_bytes = uint64_t{form.row} * element_bytes(form.element);
  if (row_bytes < kMinRowBytes || row_bytes > raw.size() / 4 || raw.size() % row_bytes != 0) return false;
  found.row_bytes = static_cast<uint32_t>(row_bytes);
  found.rows = static_cast<uint32_t>(raw.size() / row_bytes);
  if (found.rows > kMaxRowsOfLeaf) return false;
  if (likely_repeats(raw.data(), found.rows, found.row_bytes) * 12 < std::min(found.rows, kLookedAt)) return false;
  uint16_t slots[kSlots];
  std::fill(std::begin(slots), std::end(slots), kNone);
  found.different = 0;
  uint32_t meetings = 0;
  for (uint32_t r = 0; r < found.rows; ++r) {
    const std::byte* const row = raw.data() + r * row_bytes;
    uint32_t slot = hash_of(row, row_bytes) % kSlots;
    while (slots[slot] != kNone && std::memcmp(rows_out + slots[slot] * row_bytes, row, row_bytes) != 0) {
      if (++meetings > kMostMeetings * found.rows) return false;
      slot = (slot + 1) % kSlots;
    }
    if (slots[slot] == kNone) {
      std::memcpy(rows_out + found.different * row_bytes, row, row_bytes);
      slots[slot] = static_cast<uint16_t>(found.different++);
    }
    found.index[r] = slots[slot];
  }
  // Saved bytes would be coded, at a ratio of about 1.5; the cost is an index a row and a second frame.
  const uint64_t saved = (found.rows - found.different) * row_bytes / 2;
  return saved > 2 * found.rows + 2 * kFrameBytes;
}

}  // namespace kvbm::codec
