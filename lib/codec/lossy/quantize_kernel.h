// Interface of an instruction set for quantising a leaf. Formats and formulas: codec/README.md, "Lossy leaves". Every
// kernel gives equal bytes in both directions, and equal Sums: each value is a product of two floats, rounded once, and
// sums are added up in one order (LaneSums).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/hash/leaf_hash.h"
#include "codec/leaf/leaf_form.h"

namespace kvbm::codec {

// Type of a byte of `q`: a two's complement number, or one of the 8-bit floats.
enum class Number : uint8_t { integer, e4m3, e5m2 };

// Assigns scales to values: one a row (one head of one token), or one for each (head, place in the row).
struct ScaleMap {
  Element element = Element::bf16;  // bf16, fp16 or fp32
  bool by_row = false;
  uint32_t values = 0;
  uint32_t row = 0;   // values in a row
  uint32_t rows = 0;  // rows of a head; a leaf may end inside a head
  [[nodiscard]] uint32_t head() const noexcept {
    return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{row} * rows, values));
  }
  [[nodiscard]] uint32_t units() const noexcept {
    if (by_row) return (values + row - 1) / row;
    return values / head() * row + std::min(values % head(), row);
  }
  [[nodiscard]] uint32_t unit_of(uint32_t value) const noexcept {
    return by_row ? value / row : value / head() * row + value % head() % row;
  }
};

// Calls row(first value, values, first unit, row of its head) for each row, and for the incomplete one at the end.
template <class Row>
void each_row(const ScaleMap& map, Row row) noexcept {
  const uint32_t head = map.head();
  uint32_t unit = 0;
  uint32_t in_head = 0;
  for (uint32_t at = 0, r = 0; at < map.values; at += map.row, ++r) {
    if (in_head >= head) {
      in_head = r = 0;
      if (!map.by_row) unit += map.row;
    }
    row(at, std::min(map.row, map.values - at), unit, r);
    in_head += map.row;
    if (map.by_row) ++unit;
  }
}

struct Sums {
  double difference = 0;
  double value = 0;
};

// Sums of a leaf while they are added up: in 32 floats, square by square with one rounding each, in the order of
// values. The square of value i of a group of kQuantizeGroup goes to the float lane_of(element, i). The floats are
// added one after the other in the end.
struct LaneSums {
  static constexpr uint32_t kLanes = 32;
  float difference[kLanes] = {};
  float value[kLanes] = {};
  // Order of vectors of 16: each holds every other sixteen of the values, or for bf16 the even or odd ones of 32.
  static constexpr uint32_t lane_of(Element element, uint32_t i) noexcept {
    if (element == Element::bf16) return i % 2 * 16 + i / 2 % 16;
    return i / 16 % 2 * 16 + i % 16;
  }
  void add_to(Sums& sums) const noexcept {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      sums.difference += static_cast<double>(difference[lane]);
      sums.value += static_cast<double>(value[lane]);
    }
  }
};

struct QuantizeKernel {
  const char* name;
  // Largest magnitude of each unit as the bits of a float; infinities and NaNs stay above all others. False here and
  // below: this kernel cannot process leaves of that form, and its output must not be used.
  bool (*maxima)(const ScaleMap& map, const std::byte* raw, uint32_t* maxima) noexcept;
  // q[i] = code of raw[i] * reciprocal[unit]. `hash` gets the dequantised bytes, which `decoded` need not hold in the
  // end. `q` and `decoded` have room for whole groups of 64 values; `scratch`: kQuantizeScratch bytes.
  bool (*quantize)(const ScaleMap& map, Number number, const std::byte* raw, const float* reciprocal,
                   const float* scale, std::byte* q, std::byte* decoded, std::byte* scratch, LeafHasher& hash,
                   Sums& sums) noexcept;
  // `q` has room for whole groups of 64; only the values are written to `raw`.
  bool (*dequantize)(const ScaleMap& map, Number number, const std::byte* q, const float* scale, std::byte* raw,
                     std::byte* scratch) noexcept;
  // Convert between bytes and numbers of `bits` (6, 4 or 2) bits, least significant first; whole groups of 64 values.
  void (*pack)(const std::byte* q, uint32_t groups, uint32_t bits, std::byte* packed) noexcept;
  void (*unpack)(const std::byte* packed, uint32_t groups, uint32_t bits, std::byte* q) noexcept;
};

inline constexpr uint32_t kQuantizeGroup = 64;  // values
inline constexpr uint32_t kMaxScaleRow = 4096;  // values in a row
inline constexpr size_t kQuantizeScratch = size_t{3} * (32768 + kMaxScaleRow) * sizeof(float);

const QuantizeKernel& portable_quantize_kernel() noexcept;
const QuantizeKernel* avx512_quantize_kernel() noexcept;  // null if this machine lacks the instructions

}  // namespace kvbm::codec
