// The 64 bytes at the beginning of every coded leaf, for every codec. codec/README.md has the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/leaf/leaf_form.h"
#include "codec/record/record.h"

namespace kvbm::codec {

inline constexpr uint8_t kFrameVersion = 1;
inline constexpr size_t kFrameBytes = 64;  // keeps the bytes behind it aligned
inline constexpr size_t kFrameElementAt = 2;
inline constexpr size_t kFrameShapeAt = 3;
inline constexpr size_t kFrameRawHashAt = 24;
inline constexpr size_t kFrameOwnAt = 32;  // from here to the end of the 64 bytes: the codec's own fields, else zero

struct Frame {
  LeafCodec codec = LeafCodec::raw;
  uint8_t shape = 0;  // variant of the codec
  LeafForm form;
  uint32_t raw_bytes = 0;
  uint32_t stored_bytes = 0;  // with these 64 bytes; a multiple of 64
  uint64_t raw_hash = 0;      // leaf_hash of the decoded bytes
};

// Writes all 64 bytes; the codec's own fields become zero.
void write_frame(const Frame& frame, std::byte* out) noexcept;

// Checks the fields as far as they tell, and that they agree with the place where they were found: the codec of the
// leaf table, the stored and raw sizes. damaged, or newer_version.
Result<Frame> read_frame(LeafCodec codec, ConstBytes stored, size_t raw_bytes) noexcept;

// Bytes of an element; 1 if it is unknown.
constexpr size_t element_bytes(Element element) noexcept {
  if (element == Element::fp32) return 4;
  return element == Element::bf16 || element == Element::fp16 ? 2 : 1;
}

}  // namespace kvbm::codec
