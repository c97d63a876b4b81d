#include "codec/frame.h"

#include <cstring>

namespace kvbm::codec {
namespace {

enum Offset : size_t {
  kVersionAt = 0,
  kCodecAt = 1,
  kElementAt = kFrameElementAt,
  kShapeAt = kFrameShapeAt,
  kRawBytesAt = 4,
  kStoredBytesAt = 8,
  kRowAt = 12,
  kRowsAt = 16,
  kZeroAt = 20,
  kRawHashAt = kFrameRawHashAt,
};
static_assert(kRawHashAt + 8 == kFrameOwnAt);

Status damaged(const char* what) { return {Code::damaged, what}; }

}  // namespace

void write_frame(const Frame& frame, std::byte* out) noexcept {
  std::memset(out, 0, kFrameBytes);
  store_le(out + kVersionAt, kFrameVersion);
  store_le(out + kCodecAt, static_cast<uint8_t>(frame.codec));
  store_le(out + kElementAt, static_cast<uint8_t>(frame.form.element));
  store_le(out + kShapeAt, frame.shape);
  store_le(out + kRawBytesAt, frame.raw_bytes);
  store_le(out + kStoredBytesAt, frame.stored_bytes);
  store_le(out + kRowAt, frame.form.row);
  store_le(out + kRowsAt, frame.form.rows);
  store_le(out + kRawHashAt, frame.raw_hash);
}

Result<Frame> read_frame(LeafCodec codec, ConstBytes stored, size_t raw_bytes) noexcept {
  if (stored.size() < kFrameBytes || stored.size() % kCodedLeafUnit != 0) return damaged("coded leaf: cut short");
  const std::byte* in = stored.data();
  // The version keeps its place in every version; nothing after it need.
  const auto version = load_le<uint8_t>(in + kVersionAt);
  if (version > kFrameVersion) return Status{Code::newer_version, "coded leaf: written by a newer version"};
  if (version != kFrameVersion) return damaged("coded leaf: unknown version");
  if (load_le<uint8_t>(in + kCodecAt) != static_cast<uint8_t>(codec)) return damaged("coded leaf: of another codec");
  const auto element = load_le<uint8_t>(in + kElementAt);
  if (element > static_cast<uint8_t>(Element::int8)) return damaged("coded leaf: unknown element");
  if (load_le<uint32_t>(in + kZeroAt) != 0) return damaged("coded leaf: reserved field in use");
  Frame frame;
  frame.codec = codec;
  frame.shape = load_le<uint8_t>(in + kShapeAt);
  frame.form = {static_cast<Element>(element), load_le<uint32_t>(in + kRowAt), load_le<uint32_t>(in + kRowsAt)};
  frame.raw_bytes = load_le<uint32_t>(in + kRawBytesAt);
  frame.stored_bytes = load_le<uint32_t>(in + kStoredBytesAt);
  frame.raw_hash = load_le<uint64_t>(in + kRawHashAt);
  if (frame.raw_bytes != raw_bytes || raw_bytes == 0 || raw_bytes > kMaxLeafBytes ||
      frame.stored_bytes != stored.size() || frame.stored_bytes >= frame.raw_bytes) {
    return damaged("coded leaf: its lengths differ from the leaf table");
  }
  return frame;
}

}  // namespace kvbm::codec
