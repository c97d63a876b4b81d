#include "copy/tcp/frame.h"

#include "copy/transport_abi.h"

namespace kvbm::copy::tcp {

void encode(const Header& header, std::byte* out) noexcept {
  store_le<uint32_t>(out, kMagic);
  store_le<uint16_t>(out + 4, static_cast<uint16_t>(header.kind));
  store_le<uint16_t>(out + 6, 0);
  store_le<uint32_t>(out + 8, header.length);
  store_le<uint32_t>(out + 12, 0);
  store_le<uint64_t>(out + 16, header.tag);
  store_le<uint64_t>(out + 24, header.total);
}

const char* FrameOrder::accept(const std::byte* bytes, bool admitted, bool guarded, Header& out) noexcept {
  if (load_le<uint32_t>(bytes) != kMagic)
    return "it does not speak kvbm's TCP protocol: no node, or one of another transport (node.transport)";
  if (load_le<uint16_t>(bytes + 6) != 0 || load_le<uint32_t>(bytes + 12) != 0)
    return "reserved bytes of a frame are set";
  const auto kind = load_le<uint16_t>(bytes + 4);
  out.length = load_le<uint32_t>(bytes + 8);
  out.tag = load_le<uint64_t>(bytes + 16);
  out.total = load_le<uint64_t>(bytes + 24);
  if (guarded && out.length > kMostGuardedBytes) return "a frame is longer than one with a tag may be";
  switch (kind) {
    case static_cast<uint16_t>(Kind::message):
      out.kind = Kind::message;
      if (out.tag != 0 || out.total != 0) return "a message has a tag";
      if (out.length > (admitted ? KVBM_TRANSPORT_MESSAGE_BYTES : KVBM_TRANSPORT_STRANGER_BYTES)) {
        return admitted ? "a message is too large" : "a message is too large for a peer that is not admitted";
      }
      return nullptr;
    case static_cast<uint16_t>(Kind::bulk):
      out.kind = Kind::bulk;
      if (!admitted) return "bulk of a peer that is not admitted";
      if (rest_ != 0) return "a push begins inside another";
      if (out.length > out.total || (out.length == 0 && out.total != 0))
        return "a push's first frame has a wrong length";
      rest_ = out.total - out.length;
      return nullptr;
    case static_cast<uint16_t>(Kind::more):
      out.kind = Kind::more;
      if (out.tag != 0 || out.total != 0) return "a push's later frame has a tag";
      if (out.length == 0 || out.length > rest_) return "a push's later frame has a wrong length";
      rest_ -= out.length;
      return nullptr;
    default:
      return "a frame has no kind that is known";
  }
}

}  // namespace kvbm::copy::tcp
