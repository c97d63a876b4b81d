#include "cluster/link/record_source.h"

namespace kvbm::cluster {

Result<PayloadRange> leaves_range(const codec::HeadView& head, uint32_t first, uint32_t n) {
  const uint32_t count = head.header().leaf_count;
  if (first > count || n > count - first || (first == count && (n != 0 || count != 0))) {
    return Status(Code::invalid_argument, "peer: leaves beyond the end of the record");
  }
  if (count == 0) return PayloadRange{};
  const uint32_t last = (n == 0 ? count : first + n) - 1;
  const codec::Leaf begin = head.leaf(first);
  const codec::Leaf end = head.leaf(last);
  return PayloadRange{begin.offset, uint64_t{end.offset} + end.stored_bytes - begin.offset};
}

Result<codec::HeadView> check_arrival(ConstBytes bytes, const Family& family, const Key& key, uint32_t first_leaf,
                                      uint32_t leaves) {
  auto head = codec::HeadView::parse(bytes);
  if (!head.ok()) return head.status();
  const codec::Header& h = head.value().header();
  if (h.key != key || h.ns != family.ns || h.component != family.component || h.shard != family.shard ||
      h.geometry != family.geometry) {
    return Status(Code::mismatch, "peer: it pushed another record than was asked for");
  }
  const auto range = leaves_range(head.value(), first_leaf, leaves);
  if (!range.ok()) return range.status();
  if (bytes.size() != head.value().head_bytes() + range.value().bytes) {
    return Status(Code::damaged, "peer: what it pushed has another length than its head says");
  }
  return head;
}

}  // namespace kvbm::cluster
