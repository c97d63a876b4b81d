#include <algorithm>
#include <cstring>
#include <vector>

#include "target.h"
#include "tier/disk/segment_format.h"

namespace envelope_fuzz {

KVBM_FUZZ_TARGET(envelope) {
  using namespace kvbm::tier::disk;
  const kvbm::ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  if (size < kvbm::codec::kHeaderBytes) return 0;
  auto peek = kvbm::codec::peek_header(bytes.first(kvbm::codec::kHeaderBytes));
  if (peek.ok()) {
    const auto head_bytes = static_cast<uint32_t>(kvbm::codec::head_bytes(peek.value()));
    if (head_area(head_bytes) <= size) (void)decode_head_area(bytes.first(head_area(head_bytes)), head_bytes).ok();
    if (size >= kHeadUnit) (void)decode_head_area(bytes.first(kHeadUnit), head_bytes).ok();
  }
  (void)decode_head_area(bytes, static_cast<uint32_t>(size)).ok();
  if (size == kPage) (void)decode_head_area(bytes, kvbm::codec::kHeaderBytes).ok();
  return 0;
}

}  // namespace envelope_fuzz
