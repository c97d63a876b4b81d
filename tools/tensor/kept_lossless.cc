#include "tensor/kept_lossless.h"

#include "terminal/safe_text.h"

namespace kvbm::tensor {

namespace {

constexpr size_t kNamed = 5;  // tensors in a message

// Returns whether any value has all bits of the exponent set.
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

bool may_be_lossy(Element element) noexcept {
  return element == Element::bf16 || element == Element::fp16 || element == Element::fp32;
}

void KeptBlocks::add(const codec::LeafForm& form, const codec::StreamView& stream, ConstBytes raw) noexcept {
  const auto element = static_cast<Element>(form.element);
  (void)stream.each_leaf([&](const codec::StreamLeaf& leaf) -> Status {
    ++blocks;
    if (codec::is_lossy(leaf.codec)) return {};
    if (!may_be_lossy(element)) {
      ++no_float;
    } else if (has_no_number(element, raw.subspan(leaf.raw_at, leaf.raw_bytes))) {
      ++not_finite;
    } else {
      ++no_gain;
    }
    return {};
  });
}

void KeptBlocks::add(const KeptBlocks& other) noexcept {
  blocks += other.blocks;
  no_float += other.no_float;
  not_finite += other.not_finite;
  no_gain += other.no_gain;
}

void KeptLossless::add(const Tensor& tensor, const codec::LeafForm& form, const codec::StreamView& stream,
                       ConstBytes raw) {
  if (!codec::is_lossy(static_cast<codec::Mode>(stream.info().mode))) return;
  KeptBlocks counts;
  counts.add(form, stream, raw);
  all_.add(counts);
  // A tensor is listed from its first lossless block on. Its counts include the blocks before that one.
  if (current_ != tensor.offset) before_ = {};
  current_ = tensor.offset;
  before_.add(counts);
  if (before_.lossless() == 0) return;
  if (tensors_.empty() || tensors_.back().offset != tensor.offset) tensors_.push_back({tensor.name, tensor.offset, {}});
  tensors_.back().counts = before_;
}

std::string KeptLossless::text(const std::string& modes) const {
  if (all_.lossless() == 0) return {};
  const bool several = modes.find(',') != std::string::npos;
  std::string why;
  append(why, all_.not_finite, "with an infinity or a NaN");
  append(why, all_.no_float, "of a type that is not bf16, fp16 or fp32");
  append(why, all_.no_gain, "with too few values to gain, or too large or too small ones");
  std::string where;
  size_t unnamed = 0;
  size_t named = 0;
  for (const Kept& kept : tensors_) {
    if (kept.name.empty() || named == kNamed) {
      ++unnamed;
      continue;
    }
    ++named;
    where += (where.empty() ? "; in \"" : ", \"") + terminal::safe_text(kept.name, kShownName) + "\" (" +
             std::to_string(kept.counts.lossless()) + " of " + std::to_string(kept.counts.blocks) + ")";
  }
  if (named != 0 && unnamed != 0)
    where += " and " + std::to_string(unnamed) + (unnamed == 1 ? " more tensor" : " more tensors");
  return modes + (several ? " were" : " was") + " not used for " + std::to_string(all_.lossless()) + " of " +
         std::to_string(all_.blocks) + " blocks of values, which lose nothing: " + why + where;
}

}  // namespace kvbm::tensor
