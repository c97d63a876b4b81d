#include <algorithm>
#include <cstring>
#include <vector>

#include "target.h"
#include "tier/disk/segment_format.h"

namespace segment_footer_fuzz {

KVBM_FUZZ_TARGET(segment_footer) {
  using namespace kvbm::tier::disk;
  const kvbm::ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const SegmentLife life{1, 0, 1, 1, 1, 1 << 20};
  (void)decode_footer(life, bytes).ok();
  if (size >= kPage) (void)decode_segment_header(bytes).ok();
  // Sets a right checksum, so that the rows are parsed.
  if (size < kFooterTailBytes) return 0;
  std::vector<std::byte> fixed(bytes.begin(), bytes.end());
  auto tail = decode_footer_tail(life, kvbm::ConstBytes(fixed).last(kFooterTailBytes));
  if (!tail.ok() || tail.value().table_bytes() > size - kFooterTailBytes) return 0;
  const uint64_t table = checksum(kvbm::ConstBytes(fixed).first(tail.value().table_bytes()), kFooterMagic);
  const uint64_t sum = checksum(kvbm::ConstBytes(fixed).last(kFooterTailBytes).first(kFooterTailBytes - 8), table);
  kvbm::store_le<uint64_t>(fixed.data() + size - 8, sum);
  (void)decode_footer(life, fixed).ok();
  return 0;
}

}  // namespace segment_footer_fuzz
