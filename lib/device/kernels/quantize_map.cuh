// Maps values to their scales, and gives the layout of a quantised leaf: as codec/lossy/quantize_kernel.h and
// quantize.cc.
#pragma once

#include "device/kernels/coded_frame.cuh"
#include "device/kernels/quantize_number.cuh"

namespace kvbm::device::kernels {

constexpr uint32_t kScaleRow = 4096;           // most values in a row
constexpr uint32_t kScaleValues = 8;           // least values of a scale
constexpr uint32_t kScaleUnits = 32768 / kScaleValues + kScaleRow;
constexpr uint32_t kScaleFewRows = 32;         // fewer: scales of rows are weighed against those of channels
constexpr uint32_t kValueGroup = 64;
constexpr uint32_t kLeastScaleBits = 60U << 7;          // bf16 bits of 2^-67
constexpr uint32_t kMostScaleBits = (53U + 127U) << 7;  // 2^53
static_assert(2 * 4 * kScaleUnits <= kCodedScratch, "maxima of channels and of rows");

struct UnitMap {
  bool by_row = false;
  uint32_t values = 0;
  uint32_t row = 0;
  uint32_t rows = 0;
  uint32_t head = 0;  // values of one head
};

__device__ inline uint32_t units_of(const UnitMap& map) {
  if (map.by_row) return (map.values + map.row - 1) / map.row;
  const uint32_t heads = map.values / map.head;
  const uint32_t rest = map.values - heads * map.head;
  return heads * map.row + (rest < map.row ? rest : map.row);
}

// Maps by channels if rows are known; else by rows of 64 values with a scale each. At least one value.
__device__ inline UnitMap map_of(uint32_t element, uint32_t bytes, uint32_t row, uint32_t rows) {
  UnitMap map;
  map.values = bytes / element_width(element);
  const bool known = row != 0 && row <= kScaleRow;
  map.row = known ? row : kValueGroup;
  map.by_row = !known;
  const uint32_t all = map.values / map.row;
  map.rows = rows != 0 && rows < all ? rows : all;
  if (map.rows == 0) map.rows = 1;
  const uint32_t head = map.row * map.rows;
  map.head = head < map.values ? head : map.values;
  return map;
}

// Place of a value; values are visited in order. Rows never cross the border of two heads.
struct UnitPlace {
  uint32_t first = 0;  // unit of its row, or of the first place of its head
  uint32_t in_row = 0;
  uint32_t in_head = 0;
};

__device__ inline UnitPlace place_of(const UnitMap& map, uint32_t value) {
  UnitPlace place;
  if (map.by_row) {
    place.first = value / map.row;
    place.in_row = value - place.first * map.row;
    return place;
  }
  const uint32_t head = value / map.head;
  place.in_head = value - head * map.head;
  place.in_row = place.in_head % map.row;
  place.first = head * map.row;
  return place;
}

__device__ inline uint32_t unit_of(const UnitMap& map, const UnitPlace& place) {
  return map.by_row ? place.first : place.first + place.in_row;
}

__device__ inline void step(const UnitMap& map, UnitPlace& place) {
  ++place.in_head;
  if (++place.in_row == map.row) {
    place.in_row = 0;
    if (map.by_row) ++place.first;
  }
  if (!map.by_row && place.in_head == map.head) {
    place.in_head = place.in_row = 0;
    place.first += map.row;
  }
}

// Returns the bits of a number; 0: a mode that is not quantised here.
__device__ inline uint32_t number_bits(uint32_t mode) {
  if (mode == kModeE4m3 || mode == kModeE5m2 || mode == kModeInt8) return 8;
  return mode == kModeInt6 ? 6 : mode == kModeInt4 ? 4 : 0;
}

// Offsets of the parts of a leaf behind its header: scales, numbers, and its end.
constexpr uint32_t kScalesAt = kHeaderBytes;

__device__ inline uint32_t numbers_at(const UnitMap& map) { return kScalesAt + round_up_to(2 * units_of(map), 64); }

// `bits`: of a number.
__device__ inline uint32_t coded_end(const UnitMap& map, uint32_t bits) {
  const uint32_t groups = (map.values + kValueGroup - 1) / kValueGroup;
  return numbers_at(map) + round_up_to(groups * 8 * bits, 64);
}

__device__ inline bool is_float_element(uint32_t element) {
  return element == kElementBf16 || element == kElementFp16 || element == kElementFp32;
}

}  // namespace kvbm::device::kernels
