#include "copy/local/fetch.h"

#include <algorithm>
#include <cstring>

namespace kvbm::copy::local {

namespace {

// Copies memory that another process may be writing. It is read once, so that the bytes checked are the bytes used.
void snapshot(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
  __asm__ __volatile__("" ::: "memory");
}

// First read of a head: all of it for up to 14 leaves.
constexpr size_t kFirstBytes = 512;

// A small payload is used right after its head is checked, so its lines, and its page's translation, are prefetched.
// The copy of a larger one prefetches by itself, and heads may be read long before it. Measured with `kvbm bench node`.
constexpr size_t kSmallBytes = 4096;
void ask_for_small(ConstBytes payload) noexcept {
  if (payload.size() > kSmallBytes) return;
  for (size_t at = 0; at < payload.size(); at += 64) __builtin_prefetch(payload.data() + at, 0, 3);
}

bool names(const codec::Header& header, const Family& family, const Key& key) noexcept {
  return header.key == key && header.ns == family.ns && header.component == family.component &&
         header.shard == family.shard && header.geometry == family.geometry;
}

// True if the header with its checksum is unchanged: the record was not removed while it was read. An owner clears a
// head before it changes the bytes that the head describes.
bool unchanged(ConstBytes place, const codec::HeadView& head) noexcept {
  std::byte now[codec::kHeaderBytes];
  snapshot(now, place.data(), sizeof now);
  const auto peek = codec::peek_header(now);
  return peek.ok() && peek.value() == head.header();
}

Code wrong_bytes(const RecordPlace& place, const codec::HeadView& head) noexcept {
  return unchanged(place.head, head) ? Code::damaged : Code::miss;
}

}  // namespace

RecordPlace place_of(const RemotePool& pool, SlotId slot) noexcept {
  const ConstBytes payload = pool.payload(slot);
  return {pool.head(slot), payload.first(std::min<size_t>(payload.size(), pool.shape().block_bytes))};
}

bool has_head(const RecordPlace& place) noexcept {
  std::byte now[codec::kHeaderBytes];
  if (place.head.size() < sizeof now) return false;
  snapshot(now, place.head.data(), sizeof now);
  return codec::peek_header(now).ok();
}

Code read_head(const RecordPlace& record, const Family& family, const Key& key, MutableBytes room,
               std::optional<codec::HeadView>& out) noexcept {
  out.reset();
  const ConstBytes place = record.head;
  if (place.empty()) return Code::miss;
  if (room.size() < codec::kHeaderBytes) return Code::no_room;
  ask_for_small(record.payload);
  const size_t first = std::min({kFirstBytes, place.size(), room.size()});
  snapshot(room.data(), place.data(), first);
  auto head = codec::HeadView::parse(room.first(first));
  if (!head.ok()) {
    // The header, which is checked by itself, gives the length of a longer one.
    const auto peek = codec::peek_header(room.first(codec::kHeaderBytes));
    if (!peek.ok()) return Code::miss;
    const size_t bytes = codec::head_bytes(peek.value());
    if (bytes <= first || bytes > place.size()) return Code::miss;
    if (bytes > room.size()) return names(peek.value(), family, key) ? Code::no_room : Code::miss;
    snapshot(room.data() + first, place.data() + first, bytes - first);
    head = codec::HeadView::parse(room.first(bytes));
    if (!head.ok()) return Code::miss;
  }
  const codec::Header& header = head.value().header();
  if (!names(header, family, key) || header.stored_bytes > record.payload.size()) return Code::miss;
  out.emplace(std::move(head).value());
  return Code::ok;
}

Code fetch_record(const RecordPlace& place, const codec::HeadView& head, MutableBytes to,
                  codec::CopyHint hint) noexcept {
  const ConstBytes payload = place.payload;
  const uint64_t bytes = head.header().stored_bytes;
  if (bytes > payload.size() || bytes != to.size()) return Code::invalid_argument;
  const codec::CopiesOrdered of_all_leaves;
  for (uint32_t i = 0; i < head.header().leaf_count; ++i) {
    const codec::Leaf leaf = head.leaf(i);
    if (leaf.codec != codec::LeafCodec::raw) return Code::unsupported;
    const uint64_t hash = codec::copy_hashed(to.data() + leaf.offset, payload.data() + leaf.offset, leaf.stored_bytes,
                                             hint, codec::CopyOrder::later);
    if (hash != leaf.hash) return wrong_bytes(place, head);
  }
  return Code::ok;
}

}  // namespace kvbm::copy::local
