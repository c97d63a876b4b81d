// The local link: its hello, its frames in sequence (each behind a u16 of its length and a byte: bit 0 admitted, the
// rest its descriptors), and a pool's offer.
#include <algorithm>
#include <cstdlib>

#include "copy/local/frame.h"
#include "copy/local/remote_pool.h"
#include "target.h"

namespace local_frame_fuzz {

KVBM_FUZZ_TARGET(local_frame) {
  using namespace kvbm::copy::local;
  const kvbm::ConstBytes all(reinterpret_cast<const std::byte*>(data), size);
  (void)check_hello(all).ok();
  if (const auto offer = decode_offer(all); offer.ok()) {
    const auto& s = offer.value().shape;
    const auto last = s.slots - 1;
    if (s.payload_at + last * s.payload_stride + s.payload_stride > s.bytes) std::abort();
    if (s.head_at + last * s.head_stride + s.head_stride > s.bytes) std::abort();
  }
  FrameOrder order;
  uint64_t expected = 0;  // where the next part of a push has to begin
  for (kvbm::ConstBytes rest = all; rest.size() >= 3;) {
    const size_t length = kvbm::load_le<uint16_t>(rest.data());
    const auto how = static_cast<uint8_t>(rest[2]);
    rest = rest.subspan(3);
    const kvbm::ConstBytes frame = rest.first(std::min(length, rest.size()));
    rest = rest.subspan(frame.size());
    FrameHeader header;
    if (order.accept(frame, how >> 1, (how & 1) != 0, header) != nullptr) return 0;
    if (header.length + kFrameHeaderBytes != frame.size()) std::abort();
    if (header.kind != FrameKind::push) continue;
    if (header.offset != expected || header.offset + header.length > header.total) std::abort();
    expected = header.offset + header.length == header.total ? 0 : header.offset + header.length;
  }
  return 0;
}

}  // namespace local_frame_fuzz
