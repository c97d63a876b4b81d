// Every input is parsed as it is and once more with root hash and checksum made right: otherwise no mutation would come
// past them to the counts, the leaf table and the attributes.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "codec/record/record.h"
#include "target.h"

namespace record_fuzz {

namespace {

using namespace kvbm;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

// A record that parses has its leaves in order and inside the payload, and encodes to the same bytes.
void parse(ConstBytes bytes) {
  const auto view = codec::HeadView::parse(bytes);
  if (!view.ok()) return;
  const codec::Header& header = view.value().header();
  const auto peek = codec::peek_header(bytes.first(codec::kHeaderBytes));
  check(peek.ok() && peek.value() == header && codec::head_bytes(header) == view.value().head_bytes());
  uint64_t end = 0;
  std::vector<codec::Leaf> leaves;
  for (uint32_t i = 0; i < header.leaf_count; ++i) {
    leaves.push_back(view.value().leaf(i));
    check(leaves.back().offset == end);
    end += leaves.back().stored_bytes;
  }
  check(end == header.stored_bytes);
  check(codec::parse_attributes(view.value().attributes()).ok());
  std::vector<std::byte> again(view.value().head_bytes());
  const auto written = codec::encode_head(header, leaves, view.value().attributes(), again);
  check(written.ok() && written.value() == again.size());
  check(std::equal(again.begin(), again.end(), bytes.begin()));
}

// Offsets: lib/codec/README.md.
void seal(std::vector<std::byte>& head) {
  const uint64_t leaves = load_le<uint32_t>(head.data() + 24);
  const uint64_t attributes = load_le<uint32_t>(head.data() + 28);
  const uint64_t total = codec::kHeaderBytes + codec::kLeafEntryBytes * leaves + attributes;
  if (total <= head.size()) {
    std::fill_n(head.begin() + 136, 24, std::byte{0});
    const XXH128_hash_t root = XXH3_128bits(head.data(), total);
    store_le<uint64_t>(head.data() + 136, root.low64);
    store_le<uint64_t>(head.data() + 144, root.high64);
  }
  store_le<uint64_t>(head.data() + 152, XXH3_64bits(head.data(), 152));
}

}  // namespace

KVBM_FUZZ_TARGET(record) {
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  (void)codec::peek_header(bytes.first(std::min(size, codec::kHeaderBytes))).ok();
  parse(bytes);
  if (size < codec::kHeaderBytes) return 0;
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  seal(sealed);
  parse(sealed);
  return 0;
}

}  // namespace record_fuzz
