#include "codec/leaf/frame.h"

#include <cstring>

namespace kvbm::codec {
namespace {

enum FrameOffset : size_t {
  kFrameVersionAt = 0,
  kFrameCodecAt = 1,
  kFrameRawBytesAt = 4,
  kFrameStoredBytesAt = 8,
  kFrameRowAt = 12,
  kFrameRowsAt = 16,
  kFrameZeroAt = 20,
};
static_assert(kFrameRawHashAt + 8 == kFrameOwnAt);

}  // namespace

void write_frame(const Frame& frame, std::byte* out) noexcept {
  std::memset(out, 0, kFrameBytes);
  store_le(out + kFrameVersionAt, kFrameVersion);
  store_le(out + kFrameCodecAt, static_cast<uint8_t>(frame.codec));
  store_le(out + kFrameElementAt, static_cast<uint8_t>(frame.form.element));
  store_le(out + kFrameShapeAt, frame.shape);
  store_le(out + kFrameRawBytesAt, frame.raw_bytes);
  store_le(out + kFrameStoredBytesAt, frame.stored_bytes);
  store_le(out + kFrameRowAt, frame.form.row);
  store_le(out + kFrameRowsAt, frame.form.rows);
  store_le(out + kFrameRawHashAt, frame.raw_hash);
}

Result<Frame> read_frame(LeafCodec codec, ConstBytes stored, size_t raw_bytes) noexcept {
  if (stored.size() < kFrameBytes || stored.size() % kCodedLeafUnit != 0) return damaged("coded leaf: cut short");
  const std::byte* in = stored.data();
  // Only the version is at the same place in all versions.
  const auto version = load_le<uint8_t>(in + kFrameVersionAt);
  if (version > kFrameVersion) return Status{Code::newer_version, "coded leaf: written by a newer version"};
  if (version != kFrameVersion) return damaged("coded leaf: unknown version");
  if (load_le<uint8_t>(in + kFrameCodecAt) != static_cast<uint8_t>(codec))
    return damaged("coded leaf: of another codec");
  const auto element = load_le<uint8_t>(in + kFrameElementAt);
  if (element > static_cast<uint8_t>(Element::int8)) return damaged("coded leaf: unknown element");
  if (load_le<uint32_t>(in + kFrameZeroAt) != 0) return damaged("coded leaf: reserved field in use");
  Frame frame;
  frame.codec = codec;
  frame.shape = load_le<uint8_t>(in + kFrameShapeAt);
  frame.form = {static_cast<Element>(element), load_le<uint32_t>(in + kFrameRowAt),
                load_le<uint32_t>(in + kFrameRowsAt)};
  frame.raw_bytes = load_le<uint32_t>(in + kFrameRawBytesAt);
  frame.stored_bytes = load_le<uint32_t>(in + kFrameStoredBytesAt);
  frame.raw_hash = load_le<uint64_t>(in + kFrameRawHashAt);
  if (frame.raw_bytes != raw_bytes || raw_bytes == 0 || raw_bytes > kMaxLeafBytes ||
      frame.stored_bytes != stored.size() || frame.stored_bytes >= frame.raw_bytes) {
    return damaged("coded leaf: its lengths differ from the leaf table");
  }
  return frame;
}

}  // namespace kvbm::codec
