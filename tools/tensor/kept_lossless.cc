#include "tensor/kept_lossless.h"

namespace kvbm::tensor {

namespace {

using codec::Element;

bool is_float(Element element) noexcept {
  return element == Element::bf16 || element == Element::fp16 || element == Element::fp32;
}

// All bits of the exponent are set.
bool has_no_number(Element element, ConstBytes raw) noexcept {
  if (element == Element::fp32) {
    constexpr uint32_t kExponent = 0x7F800000;
    for (size_t at = 0; at + 4 <= raw.size(); at += 4) {
      if ((load_le<uint32_t>(raw.data() + at) & kExponent) == kExponent) return true;
    }
    return false;
  }
  const uint16_t exponent = element == Element::bf16 ? 0x7F80 : 0x7C00;
  for (size_t at = 0; at + 2 <= raw.size(); at += 2) {
    if ((load_le<uint16_t>(raw.data() + at) & exponent) == exponent) return true;
  }
  return false;
}

void append(std::string& text, uint64_t blocks, const char* why) {
  if (blocks == 0) return;
  text += text.empty() ? "" : ", ";
  text += std::to_string(blocks) + " " + why;
}

}  // namespace

void KeptLossless::add(const codec::LeafForm& form, const codec::StreamView& stream, ConstBytes raw) noexcept {
  size_t at = 0;
  for (uint32_t i = 0; i < stream.info().leaves; ++i) {
    const codec::StreamView::Leaf leaf = stream.leaf(i);
    const ConstBytes bytes = raw.subspan(at, leaf.raw_bytes);
    at += leaf.raw_bytes;
    ++blocks;
    if (codec::is_lossy(leaf.codec)) continue;
    if (!is_float(form.element)) {
      ++no_float;
    } else if (has_no_number(form.element, bytes)) {
      ++not_finite;
    } else {
      ++no_gain;
    }
  }
}

std::string KeptLossless::text(codec::Mode mode) const {
  if (lossless() == 0) return {};
  const std::string name(codec::mode_name(mode));
  const std::string text = name + " was not used for " + std::to_string(lossless()) + " of " + std::to_string(blocks) +
                           " blocks of values, which lose nothing: ";
  std::string why;
  append(why, not_finite, "with an infinity or a NaN");
  append(why, no_float, "of a type that is not bf16, fp16 or fp32");
  append(why, no_gain, "with too few values to gain, or too large or too small ones");
  return text + why;
}

}  // namespace kvbm::tensor
