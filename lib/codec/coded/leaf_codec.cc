#include "codec/coded/leaf_codec.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "codec/leaf/frame.h"
#include "codec/lossless/planar.h"
#include "codec/lossless/planar_kernel.h"
#include "codec/lossless/planar_tables.h"
#include "codec/lossless/zstd_leaf.h"
#include "codec/lossy/delta.h"
#include "codec/lossy/quantize.h"

namespace kvbm::codec {
namespace {

// True if so many bytes are zero that a coder of exponents would miss most of the gain: padded or unused channels, or
// floats made from shorter ones. Exponents of zeros are far from all others, and mantissas are treated as noise.
bool zeros_abound(Element element, ConstBytes raw) noexcept {
  constexpr size_t kLooks = 128;
  const size_t width = element_bytes(element);
  const size_t count = raw.size() / width;
  if (count < kLooks) return false;
  // Zeros of 8-bit floats are ordinary symbols, unless there are many of them.
  const uint32_t many = width == 1 ? kLooks / 4 : kLooks / 16;
  uint32_t zeros[4] = {};
  for (size_t i = 0; i < kLooks; ++i) {
    // Irregular distances, because channels repeat at a fixed one.
    const size_t at = (i * count + i * 2654435761U % count) / kLooks;
    for (size_t p = 0; p < width; ++p) zeros[p] += raw[at * width + p] == std::byte{0};
  }
  return *std::max_element(std::begin(zeros), std::end(zeros)) >= many;
}

// Codes the leaf with zstd instead if that makes it enough smaller than its form in `out` (of `bytes`; 0: uncoded) to
// be worth the slower decoder. Returns the new size, or 0.
Result<uint32_t> zstd_instead(const LeafForm& form, Mode mode, ConstBytes raw, uint64_t raw_hash, uint32_t bytes,
                              MutableBytes out, Workspace& workspace) noexcept {
  constexpr size_t kBeside = encode_room(kMaxLeafBytes);
  std::byte* const memory = workspace.take(kWorkspaceBytes);
  if (memory == nullptr) return Status{Code::no_memory, "no memory to code a leaf"};
  if (zstd_encode_workspace() + kBeside > kWorkspaceBytes) return uint32_t{0};
  const MutableBytes beside(memory + kWorkspaceBytes - kBeside, kBeside);
  const Result<uint32_t> other = zstd_encode(form, raw, raw_hash, beside, workspace);
  if (!other.ok() || other.value() == 0) return other;
  const uint64_t now = bytes == 0 ? raw.size() : bytes;
  const uint64_t least = mode == Mode::max ? now : now - now / 8;
  if (other.value() >= least) return uint32_t{0};
  std::memcpy(out.data(), beside.data(), other.value());
  return other;
}

}  // namespace

Result<Encoded> encode_leaf(const LeafForm& form, Mode mode, ConstBytes raw, uint64_t raw_hash, MutableBytes out,
                            Workspace& workspace) noexcept {
  if (raw.empty() || raw.size() > kMaxLeafBytes) {
    return Status{Code::invalid_argument, "a leaf to code is empty or above 64 KiB"};
  }
  if (out.size() < encode_room(raw.size())) {
    return Status{Code::invalid_argument, "a leaf to code: target too small"};
  }
  if (mode == Mode::off) return Encoded{};
  if (is_lossy(mode)) {
    const Result<Encoded> lossy = mode == Mode::delta ? delta_encode(form, raw, out, workspace)
                                                      : quantize_encode(form, mode, raw, out, workspace);
    if (!lossy.ok() || lossy.value().codec != LeafCodec::raw) return lossy;
    mode = Mode::standard;
  }
  const LeafCodec codec = mode != Mode::zstd && planar_fits(form.element) ? LeafCodec::planar : LeafCodec::zstd;
  const Result<uint32_t> bytes = codec == LeafCodec::planar ? planar_encode(form, mode, raw, raw_hash, out, workspace)
                                                            : zstd_encode(form, raw, raw_hash, out, workspace);
  if (!bytes.ok()) return bytes.status();
  if (codec == LeafCodec::planar && mode != Mode::fast && has_zstd() && zeros_abound(form.element, raw)) {
    const Result<uint32_t> other = zstd_instead(form, mode, raw, raw_hash, bytes.value(), out, workspace);
    if (!other.ok()) return other.status();
    if (other.value() != 0) return Encoded{LeafCodec::zstd, other.value()};
  }
  if (bytes.value() == 0) return Encoded{};
  return Encoded{codec, bytes.value()};
}

std::optional<uint64_t> raw_hash_of(ConstBytes stored) noexcept {
  if (stored.size() < kFrameBytes) return std::nullopt;
  return load_le<uint64_t>(stored.data() + kFrameRawHashAt);
}

Status decode_leaf(LeafCodec codec, ConstBytes stored, MutableBytes raw, Workspace& workspace) noexcept {
  if (codec == LeafCodec::raw) {
    if (stored.size() != raw.size()) return {Code::damaged, "raw leaf: not as long as its leaf"};
    if (!raw.empty()) std::memcpy(raw.data(), stored.data(), raw.size());
    return {};
  }
  const Result<Frame> frame = read_frame(codec, stored, raw.size());
  if (!frame.ok()) return frame.status();
  switch (codec) {
    case LeafCodec::planar:
      return planar_decode(frame.value(), stored, raw, workspace);
    case LeafCodec::zstd:
      return zstd_decode(frame.value(), stored, raw, workspace);
    case LeafCodec::quantized:
      return quantize_decode(frame.value(), stored, raw, workspace);
    case LeafCodec::delta:
      return delta_decode(frame.value(), stored, raw, workspace);
    default:
      return {Code::newer_version, "coded leaf: a codec that is not known here"};
  }
}

Result<Encoded> encode_planes(const LeafForm& form, ConstBytes planes, uint64_t raw_hash, MutableBytes out,
                              Workspace& workspace) noexcept {
  if (planes.empty() || planes.size() > kMaxLeafBytes || out.size() < encode_room(planes.size())) {
    return Status{Code::invalid_argument, "planes of a leaf that is empty, above 64 KiB, or has too small a target"};
  }
  const Result<uint32_t> bytes = zstd_encode_planes(form, planes, raw_hash, out, workspace);
  if (!bytes.ok()) return bytes.status();
  return bytes.value() == 0 ? Encoded{} : Encoded{LeafCodec::zstd, bytes.value()};
}

Status decode_planes(ConstBytes stored, MutableBytes planes, Element& element, Workspace& workspace) noexcept {
  const Result<Frame> frame = read_frame(LeafCodec::zstd, stored, planes.size());
  if (!frame.ok()) return frame.status();
  element = frame.value().form.element;
  return zstd_decode_planes(frame.value(), stored, planes, workspace);
}

std::optional<Mode> mode_of(LeafCodec codec, ConstBytes stored) noexcept {
  if (codec == LeafCodec::raw) return Mode::off;
  if (stored.size() <= kFrameShapeAt) return std::nullopt;
  const auto shape = std::to_integer<uint8_t>(stored[kFrameShapeAt]);
  switch (codec) {
    case LeafCodec::planar:
      return planar_mode(shape);
    case LeafCodec::zstd:
      return Mode::zstd;
    case LeafCodec::quantized:
    case LeafCodec::delta:
      return static_cast<Mode>(shape);
    default:
      return std::nullopt;
  }
}

bool is_lossy(LeafCodec codec) noexcept { return codec == LeafCodec::quantized || codec == LeafCodec::delta; }

const char* codec_kernel_name() noexcept { return planar_kernel().name; }

bool force_codec_kernel(const char* name) noexcept { return force_planar_kernel(name) && force_quantize_kernel(name); }

}  // namespace kvbm::codec
