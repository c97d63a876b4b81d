#include "tier/check_record.h"

#include "codec/hash/leaf_hash.h"

namespace kvbm::tier {

Code check_head(const Family& family, const Key& key, ConstBytes head, uint64_t payload_bytes, codec::HeadView* out) {
  const auto view = codec::HeadView::parse(head);
  if (!view.ok()) return Code::damaged;
  const codec::Header& header = view.value().header();
  if (header.key != key || header.ns != family.ns || header.component != family.component ||
      header.shard != family.shard || header.geometry != family.geometry || header.stored_bytes != payload_bytes) {
    return Code::damaged;
  }
  if (out != nullptr) *out = view.value();
  return Code::ok;
}

Code check_leaves(const codec::HeadView& head, ConstBytes payload) {
  for (uint32_t l = 0; l < head.header().leaf_count; ++l) {
    const codec::Leaf leaf = head.leaf(l);
    if (codec::leaf_hash(payload.subspan(leaf.offset, leaf.stored_bytes)) != leaf.hash) return Code::damaged;
  }
  return Code::ok;
}

}  // namespace kvbm::tier
