#include "layout/element.h"

namespace kvbm::layout {

const char* element_name(Element e) noexcept {
  switch (e) {
    case Element::bytes:
      return "bytes";
    case Element::bf16:
      return "bf16";
    case Element::fp16:
      return "fp16";
    case Element::fp32:
      return "fp32";
    case Element::fp8_e4m3:
      return "fp8_e4m3";
    case Element::fp8_e5m2:
      return "fp8_e5m2";
    case Element::int8:
      return "int8";
  }
  return "unknown element type";
}

}  // namespace kvbm::layout
