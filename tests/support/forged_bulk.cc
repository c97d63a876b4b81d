#include "support/forged_bulk.h"

#include <algorithm>
#include <vector>

#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"

namespace kvbm::test {

namespace {

// lib/cluster/session/README.md, Slice.
constexpr uint32_t kSliceMagic = 0x4C53564BU;  // "KVSL"
constexpr size_t kSliceHead = 96;
constexpr size_t kAtPayloadBytes = 44;
constexpr size_t kAtLeaves = 48;
constexpr size_t kAtFrontHash = 88;
constexpr size_t kFrontUnit = 64;

bool forge_record(MutableBytes bulk, size_t at) {
  const auto view = codec::HeadView::parse(bulk);
  if (!view.ok()) return false;
  const codec::Header header = view.value().header();
  const size_t head_bytes = view.value().head_bytes();
  const MutableBytes payload = bulk.subspan(head_bytes);
  if (header.leaf_count == 0 || payload.size() != header.stored_bytes) return false;
  at = std::min(at, payload.size() - 1);
  payload[at] ^= std::byte{0xFF};
  for (uint32_t i = 0; i < header.leaf_count; ++i) {
    codec::Leaf leaf = view.value().leaf(i);
    if (at < leaf.offset || at - leaf.offset >= leaf.stored_bytes) continue;
    leaf.hash = codec::leaf_hash(payload.subspan(leaf.offset, leaf.stored_bytes));
    codec::put_leaf(bulk.first(head_bytes), i, leaf);
  }
  return codec::finish_head(header, bulk.first(head_bytes)).ok();
}

bool forge_slice(MutableBytes bulk, size_t at) {
  if (bulk.size() < kSliceHead || load_le<uint32_t>(bulk.data()) != kSliceMagic) return false;
  const size_t payload_bytes = load_le<uint32_t>(bulk.data() + kAtPayloadBytes);
  if (load_le<uint32_t>(bulk.data() + kAtLeaves) != 1 || payload_bytes == 0) return false;
  const size_t front_bytes = round_up(kSliceHead + sizeof(uint64_t), kFrontUnit);
  if (bulk.size() != front_bytes + payload_bytes) return false;
  const MutableBytes payload = bulk.subspan(front_bytes);
  payload[std::min(at, payload.size() - 1)] ^= std::byte{0xFF};
  store_le<uint64_t>(bulk.data() + kSliceHead, codec::leaf_hash(payload));
  store_le<uint64_t>(bulk.data() + kAtFrontHash, 0);
  store_le<uint64_t>(bulk.data() + kAtFrontHash, codec::leaf_hash(bulk.first(front_bytes)));
  return true;
}

}  // namespace

bool forge_bulk(MutableBytes bulk, size_t at) { return forge_record(bulk, at) || forge_slice(bulk, at); }

}  // namespace kvbm::test
