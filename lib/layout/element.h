// Element types of a cache. Their numbers are part of the geometry fingerprint and never change.
#pragma once

#include <cstdint>

namespace kvbm::layout {

enum class Element : uint8_t { bytes = 0, bf16 = 1, fp16 = 2, fp32 = 3, fp8_e4m3 = 4, fp8_e5m2 = 5, int8 = 6 };
inline constexpr uint8_t kElementCount = 7;

// Size of one element; 0 for a value that is not an Element.
constexpr uint32_t element_bytes(Element e) noexcept {
  switch (e) {
    case Element::bytes:
    case Element::fp8_e4m3:
    case Element::fp8_e5m2:
    case Element::int8:
      return 1;
    case Element::bf16:
    case Element::fp16:
      return 2;
    case Element::fp32:
      return 4;
  }
  return 0;
}

// The name used in configuration and messages, e.g. "bf16"; never null.
const char* element_name(Element e) noexcept;

}  // namespace kvbm::layout
