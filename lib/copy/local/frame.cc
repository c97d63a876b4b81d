#include "copy/local/frame.h"

#include <algorithm>
#include <string>

#include "copy/local/remote_pool.h"

namespace kvbm::copy::local {

namespace {
constexpr uint64_t kHelloMagic = 0x3143'4F4C'4D42'564BULL;  // "KVBMLOC1" in memory
}

void encode_hello(std::byte* out) noexcept {
  std::memset(out, 0, kHelloBytes);
  store_le(out, kHelloMagic);
  store_le(out + 8, kLinkVersion);
}

Status check_hello(ConstBytes bytes) {
  if (bytes.size() != kHelloBytes || load_le<uint64_t>(bytes.data()) != kHelloMagic) {
    return Status(Code::damaged, "the process at the other end does not speak the local link's protocol");
  }
  const auto version = load_le<uint32_t>(bytes.data() + 8);
  if (version != kLinkVersion) {
    return Status(Code::newer_version,
                  "the peer speaks another version of the local link; use one kvbm version on a host",
                  "it speaks " + std::to_string(version) + ", this library " + std::to_string(kLinkVersion));
  }
  const auto rest = bytes.subspan(12);
  if (std::any_of(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return Status(Code::damaged, "a peer's hello has reserved bytes in use");
  }
  return {};
}

void encode(const FrameHeader& header, std::byte* out) noexcept {
  store_le(out, static_cast<uint16_t>(header.kind));
  store_le(out + 2, uint16_t{0});
  store_le(out + 4, header.length);
  store_le(out + 8, header.tag);
  store_le(out + 16, header.total);
  store_le(out + 24, header.offset);
}

const char* FrameOrder::accept(ConstBytes frame, size_t n_fds, bool admitted, FrameHeader& out) noexcept {
  if (frame.size() < kFrameHeaderBytes || frame.size() > kFrameBytes) return "a frame of a size that no frame has";
  const std::byte* in = frame.data();
  const auto kind = load_le<uint16_t>(in);
  out = {static_cast<FrameKind>(kind), load_le<uint32_t>(in + 4), load_le<uint64_t>(in + 8), load_le<uint64_t>(in + 16),
         load_le<uint64_t>(in + 24)};
  if (kind < 1 || kind > 3) return "a frame of an unknown kind";
  if (load_le<uint16_t>(in + 2) != 0) return "a frame with a reserved field in use";
  if (out.length != frame.size() - kFrameHeaderBytes) return "a frame that lies about its length";
  if (n_fds != (out.kind == FrameKind::pool ? 1U : 0U)) return "descriptors where none belong";
  if (out.kind != FrameKind::push) {
    if (out.tag != 0 || out.total != 0 || out.offset != 0) return "a frame with fields in use that are not its own";
    if (out.kind == FrameKind::pool)
      return out.length == kOfferBytes ? nullptr : "a pool that is not described as pools are";
    return admitted || out.length <= KVBM_TRANSPORT_STRANGER_BYTES ? nullptr : "a long message before it was admitted";
  }
  if (!admitted) return "bulk before it was admitted";
  if (out.length == 0 && out.total != 0) return "a part of a push with nothing in it";
  if (total_ == 0) {
    if (out.offset != 0) return "a push that begins in its middle";
    tag_ = out.tag;
    total_ = out.total;
    next_ = 0;
  }
  if (out.tag != tag_ || out.total != total_ || out.offset != next_) return "a push out of order";
  if (out.length > total_ - next_) return "a push longer than it says";
  next_ += out.length;
  if (next_ == total_) total_ = 0;
  return nullptr;
}

}  // namespace kvbm::copy::local
