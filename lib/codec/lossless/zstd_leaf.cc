#include "codec/lossless/zstd_leaf.h"

#if defined(KVBM_WITH_ZSTD)
#define ZSTD_STATIC_LINKING_ONLY  // contexts in memory of the caller
#include <zstd.h>
#endif

#include <algorithm>
#include <cstring>

namespace kvbm::codec {

#if defined(KVBM_WITH_ZSTD)
bool has_zstd() noexcept { return true; }

namespace {

constexpr int kLevel = 1;
constexpr size_t kMaxPlanes = 4;
// A smaller plane gains too little for a call.
constexpr size_t kMinPlane = 32;

// True for elements that are rotated left by one bit, as little-endian integers: floats of 16 or 32 bits. Then the
// exponent is the top of the last plane, and the sign is the lowest bit of the first.
bool turned(Element element) noexcept {
  return element == Element::bf16 || element == Element::fp16 || element == Element::fp32;
}

template <class T>
void split(const std::byte* raw, size_t count, bool turn, std::byte* planes) noexcept {
  for (size_t i = 0; i < count; ++i) {
    T v;
    std::memcpy(&v, raw + i * sizeof v, sizeof v);
    if (turn) v = static_cast<T>(static_cast<T>(v << 1) | static_cast<T>(v >> (8 * sizeof v - 1)));
    for (size_t p = 0; p < sizeof v; ++p) planes[p * count + i] = static_cast<std::byte>(v >> (8 * p));
  }
}

template <class T>
void join(const std::byte* const* planes, size_t count, bool turn, std::byte* raw) noexcept {
  for (size_t i = 0; i < count; ++i) {
    T v = 0;
    for (size_t p = 0; p < sizeof v; ++p) {
      v = static_cast<T>(v | static_cast<T>(static_cast<T>(std::to_integer<uint8_t>(planes[p][i])) << (8 * p)));
    }
    if (turn) v = static_cast<T>(static_cast<T>(v >> 1) | static_cast<T>(v << (8 * sizeof v - 1)));
    std::memcpy(raw + i * sizeof v, &v, sizeof v);
  }
}

size_t context_bytes() noexcept {
  static const size_t bytes = ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(kLevel, kMaxLeafBytes, 0));
  return round_up(bytes, 64);
}

bool set(ZSTD_CCtx* context, ZSTD_cParameter parameter, int value) noexcept {
  return ZSTD_isError(ZSTD_CCtx_setParameter(context, parameter, value)) == 0;
}

// Sets the parameters for which the context's memory was sized. The frame needs neither size nor checksum: kvbm's own
// frame has them.
bool prepare(ZSTD_CCtx* context) noexcept {
  const ZSTD_compressionParameters p = ZSTD_getCParams(kLevel, kMaxLeafBytes, 0);
  return context != nullptr && set(context, ZSTD_c_compressionLevel, kLevel) &&
         set(context, ZSTD_c_windowLog, static_cast<int>(p.windowLog)) &&
         set(context, ZSTD_c_chainLog, static_cast<int>(p.chainLog)) &&
         set(context, ZSTD_c_hashLog, static_cast<int>(p.hashLog)) && set(context, ZSTD_c_contentSizeFlag, 0) &&
         set(context, ZSTD_c_checksumFlag, 0);
}

}  // namespace

size_t zstd_encode_workspace() noexcept { return context_bytes() + kMaxLeafBytes; }

Result<uint32_t> zstd_encode(const LeafForm& form, ConstBytes raw, uint64_t raw_hash, MutableBytes out,
                             Workspace& workspace) noexcept {
  const size_t width = element_bytes(form.element);
  if (width == 1) return zstd_encode_planes(form, raw, raw_hash, out, workspace);
  const size_t count = raw.size() / width;
  std::byte* const memory = workspace.take(zstd_encode_workspace());
  if (memory == nullptr) return Status{Code::no_memory, "no memory to code a leaf"};
  std::byte* const planes = memory + context_bytes();  // behind the part that zstd_encode_planes() uses
  if (width == 2) split<uint16_t>(raw.data(), count, turned(form.element), planes);
  if (width == 4) split<uint32_t>(raw.data(), count, turned(form.element), planes);
  std::memcpy(planes + count * width, raw.data() + count * width, raw.size() - count * width);
  return zstd_encode_planes(form, {planes, raw.size()}, raw_hash, out, workspace);
}

Result<uint32_t> zstd_encode_planes(const LeafForm& form, ConstBytes planes, uint64_t raw_hash, MutableBytes out,
                                    Workspace& workspace) noexcept {
  const size_t width = element_bytes(form.element);
  const size_t count = planes.size() / width;
  std::byte* const memory = workspace.take(context_bytes());
  if (memory == nullptr) return Status{Code::no_memory, "no memory to code a leaf"};
  ZSTD_CCtx* const context = ZSTD_initStaticCCtx(memory, context_bytes());
  if (!prepare(context)) return Status{Code::internal, "zstd refuses its parameters"};
  const size_t tail = planes.size() - count * width;
  const size_t room = std::min(out.size(), planes.size());
  size_t at = kFrameBytes;
  uint32_t sizes[kMaxPlanes] = {};
  for (size_t p = 0; p < width; ++p) {
    const std::byte* const plane = planes.data() + p * count;
    if (at + tail >= room) return uint32_t{0};
    size_t bytes = 0;
    if (count >= kMinPlane) {
      bytes = ZSTD_compress2(context, out.data() + at, std::min(count - 1, room - at), plane, count);
      if (ZSTD_isError(bytes) != 0) bytes = 0;
    }
    if (bytes == 0) {
      if (room - at < count) return uint32_t{0};
      std::memcpy(out.data() + at, plane, count);
    }
    sizes[p] = static_cast<uint32_t>(bytes);
    at += bytes == 0 ? count : bytes;
  }
  const size_t total = round_up(at + tail, kCodedLeafUnit);
  if (total >= planes.size() || total > out.size()) return uint32_t{0};
  std::memcpy(out.data() + at, planes.data() + count * width, tail);
  std::memset(out.data() + at + tail, 0, total - at - tail);
  write_frame({LeafCodec::zstd, 0, form, static_cast<uint32_t>(planes.size()), static_cast<uint32_t>(total), raw_hash},
              out.data());
  for (size_t p = 0; p < kMaxPlanes; ++p) store_le(out.data() + kFrameOwnAt + 4 * p, sizes[p]);
  return static_cast<uint32_t>(total);
}

Status zstd_decode_planes(const Frame& frame, ConstBytes stored, MutableBytes planes, Workspace& workspace) noexcept {
  const Status damaged{Code::damaged, "coded leaf: not what zstd wrote"};
  if (frame.shape != 0) return {Code::newer_version, "coded leaf: unknown shape of a zstd leaf"};
  const size_t width = element_bytes(frame.form.element);
  const size_t count = planes.size() / width;
  std::byte* const memory = workspace.take(round_up(ZSTD_estimateDCtxSize(), 64));
  if (memory == nullptr) return {Code::no_memory, "no memory to decode a leaf"};
  ZSTD_DCtx* const context = ZSTD_initStaticDCtx(memory, round_up(ZSTD_estimateDCtxSize(), 64));
  if (context == nullptr) return {Code::internal, "zstd refuses its memory"};
  size_t at = kFrameBytes;
  for (size_t p = 0; p < width; ++p) {
    const auto bytes = load_le<uint32_t>(stored.data() + kFrameOwnAt + 4 * p);
    const size_t held = bytes == 0 ? count : bytes;
    if (held > stored.size() - at) return damaged;
    std::byte* const to = planes.data() + p * count;
    if (bytes == 0) {
      std::memcpy(to, stored.data() + at, count);
    } else if (ZSTD_decompressDCtx(context, to, count, stored.data() + at, bytes) != count) {
      return damaged;
    }
    at += held;
  }
  const size_t tail = planes.size() - count * width;
  if (tail > stored.size() - at) return damaged;
  std::memcpy(planes.data() + count * width, stored.data() + at, tail);
  return {};
}

Status zstd_decode(const Frame& frame, ConstBytes stored, MutableBytes raw, Workspace& workspace) noexcept {
  const size_t width = element_bytes(frame.form.element);
  if (width == 1) return zstd_decode_planes(frame, stored, raw, workspace);
  const size_t count = raw.size() / width;
  const size_t context_room = round_up(ZSTD_estimateDCtxSize(), 64);
  std::byte* const memory = workspace.take(context_room + kMaxLeafBytes);
  if (memory == nullptr) return {Code::no_memory, "no memory to decode a leaf"};
  std::byte* const room = memory + context_room;  // behind the part that zstd_decode_planes() uses
  if (Status done = zstd_decode_planes(frame, stored, {room, raw.size()}, workspace); !done.ok()) return done;
  const std::byte* planes[kMaxPlanes] = {};
  for (size_t p = 0; p < width; ++p) planes[p] = room + p * count;
  if (width == 2) join<uint16_t>(planes, count, turned(frame.form.element), raw.data());
  if (width == 4) join<uint32_t>(planes, count, turned(frame.form.element), raw.data());
  std::memcpy(raw.data() + count * width, room + count * width, raw.size() - count * width);
  return {};
}

#else

bool has_zstd() noexcept { return false; }
size_t zstd_encode_workspace() noexcept { return 0; }

Result<uint32_t> zstd_encode(const LeafForm&, ConstBytes, uint64_t, MutableBytes, Workspace&) noexcept {
  return uint32_t{0};
}

Result<uint32_t> zstd_encode_planes(const LeafForm&, ConstBytes, uint64_t, MutableBytes, Workspace&) noexcept {
  return uint32_t{0};
}

Status zstd_decode_planes(const Frame&, ConstBytes, MutableBytes, Workspace&) noexcept {
  return {Code::unsupported, "a leaf coded with zstd, which this build is without"};
}

Status zstd_decode(const Frame&, ConstBytes, MutableBytes, Workspace&) noexcept {
  return {Code::unsupported, "a leaf coded with zstd, which this build is without"};
}

#endif

}  // namespace kvbm::codec
