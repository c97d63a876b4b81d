// Interface of an instruction set for planar leaves: whole blocks of 64 elements, split and coded, or decoded and
// joined. Tables, choices and checks are shared (planar.cc); every kernel gives equal bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "codec/leaf/leaf_form.h"

namespace kvbm::codec {

inline constexpr uint32_t kBlock = 64;       // elements
inline constexpr uint32_t kMaxLevels = 8;    // longest code
inline constexpr uint32_t kMaxSymbols = 32;  // of a class, the escape included
inline constexpr uint32_t kMaxClasses = 4;
inline constexpr uint32_t kMaxVectors = 64;  // class vectors: limit of different blocks of channels
inline constexpr uint32_t kClassEntries = kMaxClasses * kMaxSymbols;
inline constexpr uint32_t kCounts = kClassEntries + 1;

inline constexpr uint32_t kPackedBlock = 56;  // bytes of 64 values of 7 bits

// An element, rotated left by one bit, is a top byte and width - 1 lower ones. The top byte is symbol << raw_bits |
// rest.
struct PlanarElement {
  uint32_t width = 0;
  uint32_t raw_bits = 0;
  bool signs = false;   // folded: the symbol ends with the sign
  bool packed = false;  // the lower bytes are stored without their last bits, which are zero
};

// Codes are numbers of `levels` bits in canonical order: shorter codes are smaller. So an element is undecided after l
// levels if the known part of its code, with zeros for later bits, is at least limit[l]. The last code, all ones, is
// the escape.
struct PlanarPlan {
  PlanarElement element;
  uint32_t blocks = 0;
  uint32_t period = 1;        // blocks until the channels repeat
  uint32_t group_blocks = 1;  // blocks of a group (a head); each group has its own `period` class vectors
  uint32_t levels = 0;
  uint32_t full = 0;  // levels that every code has
  std::array<uint16_t, kMaxLevels + 1> limit{};
  alignas(64) uint8_t classes[kMaxVectors * kBlock];  // class * kMaxSymbols of each channel
  alignas(64) uint8_t rank[256];                      // decoding: rank of a code
  alignas(64) uint8_t symbol[kClassEntries];          // decoding: symbol of class * kMaxSymbols + rank
  alignas(64) uint8_t code[kClassEntries];            // encoding: code of class * kMaxSymbols + (symbol - base)
  uint8_t base = 0;                                   // symbols outside of [base, base + kMaxSymbols) are escaped
};

// Places of the parts of a coded leaf. A code has up to kMaxLevels bits; the bits of one level are a stream of 64-bit
// words. A level that every code has ("full") takes one word a block, and full streams lie one behind the other. The
// other streams are "open": their lengths are known only at the end, so they are written at equal distances. Kernels
// may read and write beyond the ends of open streams and escapes; planar.cc reserves the bytes for that.
struct PlanarPlaces {
  std::array<std::byte*, kMaxLevels> streams{};
  std::byte* escapes = nullptr;
  std::byte* bits = nullptr;           // raw_bits words a block
  std::array<std::byte*, 3> planes{};  // the lower bytes, lowest first
};

// Ends of the streams, in bits and bytes.
struct PlanarEnds {
  std::array<uint32_t, kMaxLevels> bits{};
  uint32_t escapes = 0;
};

struct PlanarKernel {
  const char* name;
  void (*encode)(const PlanarPlan& plan, const std::byte* raw, const PlanarPlaces& to, PlanarEnds& ends) noexcept;
  void (*decode)(const PlanarPlan& plan, const PlanarPlaces& from, std::byte* raw, PlanarEnds& ends) noexcept;
  // Extracts the symbols of a block, and adds them to the sums of its channels.
  void (*sample)(const PlanarElement& element, const std::byte* raw, uint8_t* symbols, uint16_t* sums) noexcept;
  // Counts how often each symbol of the window occurs in each class: counts[class + symbol - base], and those outside
  // of it in counts[kClassEntries]. `symbols`: [row][channel], `channels` a multiple of 64.
  void (*count)(const uint8_t* symbols, uint32_t rows, uint32_t channels, const uint8_t* classes, uint8_t base,
                uint32_t* counts) noexcept;
  // Functions for elements with a coded sign (shape 17): planar_signs.inc. `bytes`: of whole blocks; `row_bytes`: of an
  // element at least. fold_signs() returns false if an element does not fit; `out` (as long as `raw`, not overlapping)
  // must not be used then.
  bool (*fold_signs)(Element element, const std::byte* raw, size_t bytes, size_t row_bytes, std::byte* out) noexcept;
  void (*unfold_signs)(Element element, std::byte* raw, size_t bytes, size_t row_bytes) noexcept;
  void (*pack_low)(const std::byte* low, uint32_t blocks, std::byte* out) noexcept;
  void (*unpack_low)(const std::byte* packed, uint32_t blocks, std::byte* out) noexcept;
  bool takes_packed = false;  // decode() reads packed lower bytes in stored form
};

// Each returns null if this machine lacks the instructions.
const PlanarKernel* planar_portable() noexcept;
const PlanarKernel* planar_bmi2() noexcept;
const PlanarKernel* planar_avx512() noexcept;

// The fastest kernel here, measured once if necessary; or the forced one.
const PlanarKernel& planar_kernel() noexcept;

// For tests and benchmarks; null restores the choice, false: not available here.
bool force_planar_kernel(const char* name) noexcept;

}  // namespace kvbm::codec
