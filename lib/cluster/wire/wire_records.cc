// Messages about records: found, wanted and offered ones.
#include "cluster/wire/wire_fields.h"

namespace kvbm::cluster::wire {
namespace {

constexpr size_t kFamilies = kMaxFamiliesPerMessage * kFamilyBytes;
static_assert(kHeadBytes + 24 + kFamilies + kMaxFindItems * kFindItemBytes <= kMaxBody);
static_assert(kHeadBytes + 24 + kMaxFindItems * kFoundItemBytes <= kMaxBody);
static_assert(kHeadBytes + 16 + kFamilies + kMaxFetchItems * kFetchItemBytes <= kMaxBody);
static_assert(kHeadBytes + kMaxFetchItems * kFetchedItemBytes <= kMaxBody);
static_assert(kHeadBytes + 24 + kFamilies + kMaxOfferItems * kOfferItemBytes <= kMaxBody);

}  // namespace

// find: head | u32 first, u32 families, u64 lease_ns | families | key, u16 family, u16 zero ...
size_t encode(const Find& m, MutableBytes out) noexcept {
  if (m.items.size() > kMaxFindItems || m.families.size() > kMaxFamiliesPerMessage) return 0;
  Writer w(out, kHeadBytes + 16 + m.families.size() * kFamilyBytes + m.items.size() * kFindItemBytes, Type::find,
           m.items.size(), m.request);
  if (!w.fits()) return 0;
  w.put(m.first);
  w.put(static_cast<uint32_t>(m.families.size()));
  w.put(m.lease_ns);
  w.put(m.families);
  for (const Name& item : m.items) {
    w.put(item);
    w.put(uint16_t{0});
  }
  return w.bytes();
}

Status decode(ConstBytes body, Find& out) {
  Head head;
  Reader r(body, Type::find, head);
  out.request = head.request;
  out.first = r.get<uint32_t>();
  const auto families = r.get<uint32_t>();
  out.lease_ns = r.get<uint64_t>();
  r.get(out.families, families);
  out.items.clear();
  if (r.room(head.count, kMaxFindItems, kFindItemBytes)) {
    out.items.resize(head.count);
    for (Name& item : out.items) {
      r.get(item, out.families.size());
      r.zero<uint16_t>();
    }
  }
  return r.end("peer: a find is damaged");
}

// found: head | u32 first, u32 zero, u64 lease, u64 lease_ns | u8 present, u8 tier, u16 zero, u32 head bytes, u64
// payload bytes, u64 location ...
size_t encode(const Found& m, MutableBytes out) noexcept {
  if (m.items.size() > kMaxFindItems) return 0;
  Writer w(out, kHeadBytes + 24 + m.items.size() * kFoundItemBytes, Type::found, m.items.size(), m.request);
  if (!w.fits()) return 0;
  w.put(m.first);
  w.put(uint32_t{0});
  w.put(m.lease);
  w.put(m.lease_ns);
  for (const FoundItem& item : m.items) {
    w.put(item.present);
    w.put(item.tier);
    w.put(uint16_t{0});
    w.put(item.head_bytes);
    w.put(item.payload_bytes);
    w.put(item.location);
  }
  return w.bytes();
}

Status decode(ConstBytes body, Found& out) {
  Head head;
  Reader r(body, Type::found, head);
  out.request = head.request;
  out.first = r.get<uint32_t>();
  r.zero<uint32_t>();
  out.lease = r.get<uint64_t>();
  out.lease_ns = r.get<uint64_t>();
  out.items.clear();
  if (r.room(head.count, kMaxFindItems, kFoundItemBytes)) {
    out.items.resize(head.count);
    for (FoundItem& item : out.items) {
      item.present = r.get<uint8_t>();
      item.tier = r.get<uint8_t>();
      r.zero<uint16_t>();
      item.head_bytes = r.get<uint32_t>();
      item.payload_bytes = r.get<uint64_t>();
      item.location = r.get<uint64_t>();
      if (item.present > 1) return {Code::damaged, "peer: an answer to a find is damaged"};
    }
  }
  return r.end("peer: an answer to a find is damaged");
}

// fetch: head | u64 budget_ns, u32 families, u8 mode, u8 flags, u16 codecs | families | key, u16 family, u16 zero, u32
// first leaf, u32 leaves, u32 zero, u64 location, u64 tag, u64 room ...
size_t encode(const Fetch& m, MutableBytes out) noexcept {
  if (m.items.size() > kMaxFetchItems || m.families.size() > kMaxFamiliesPerMessage) return 0;
  Writer w(out, kHeadBytes + 16 + m.families.size() * kFamilyBytes + m.items.size() * kFetchItemBytes, Type::fetch,
           m.items.size(), m.request);
  if (!w.fits()) return 0;
  w.put(m.budget_ns);
  w.put(static_cast<uint32_t>(m.families.size()));
  w.put(m.coding.mode);
  w.put(m.coding.flags);
  w.put(m.coding.codecs);
  w.put(m.families);
  for (const FetchItem& item : m.items) {
    w.put(item.name);
    w.put(uint16_t{0});
    w.put(item.first_leaf);
    w.put(item.leaves);
    w.put(uint32_t{0});
    w.put(item.location);
    w.put(item.tag);
    w.put(item.room);
  }
  return w.bytes();
}

Status decode(ConstBytes body, Fetch& out) {
  Head head;
  Reader r(body, Type::fetch, head);
  out.request = head.request;
  out.budget_ns = r.get<uint64_t>();
  const auto families = r.get<uint32_t>();
  out.coding.mode = r.get<uint8_t>();
  out.coding.flags = r.get<uint8_t>();
  out.coding.codecs = r.get<uint16_t>();
  r.get(out.families, families);
  out.items.clear();
  if (r.room(head.count, kMaxFetchItems, kFetchItemBytes)) {
    out.items.resize(head.count);
    for (FetchItem& item : out.items) {
      r.get(item.name, out.families.size());
      r.zero<uint16_t>();
      item.first_leaf = r.get<uint32_t>();
      item.leaves = r.get<uint32_t>();
      r.zero<uint32_t>();
      item.location = r.get<uint64_t>();
      item.tag = r.get<uint64_t>();
      item.room = r.get<uint64_t>();
    }
  }
  return r.end("peer: a fetch is damaged");
}

// fetched: head | u32 index, i32 code, u32 head bytes, u32 zero, u64 payload bytes ...
size_t encode(const Fetched& m, MutableBytes out) noexcept {
  if (m.items.size() > kMaxFetchItems) return 0;
  Writer w(out, kHeadBytes + m.items.size() * kFetchedItemBytes, Type::fetched, m.items.size(), m.request);
  if (!w.fits()) return 0;
  for (const FetchedItem& item : m.items) {
    w.put(item.index);
    w.put(item.code);
    w.put(item.head_bytes);
    w.put(uint32_t{0});
    w.put(item.payload_bytes);
  }
  return w.bytes();
}

Status decode(ConstBytes body, Fetched& out) {
  Head head;
  Reader r(body, Type::fetched, head);
  out.request = head.request;
  out.items.clear();
  if (r.room(head.count, kMaxFetchItems, kFetchedItemBytes)) {
    out.items.resize(head.count);
    for (FetchedItem& item : out.items) {
      item.index = r.get<uint32_t>();
      item.code = r.get<int32_t>();
      item.head_bytes = r.get<uint32_t>();
      r.zero<uint32_t>();
      item.payload_bytes = r.get<uint64_t>();
    }
  }
  return r.end("peer: an answer to a fetch is damaged");
}

// offer: head | u64 lease, u64 lease_ns, u32 families, u32 zero | families | key, u16 family, u16 uses, u8 priority,
// 3 zero, u32 head bytes, u32 zero, u64 payload bytes, u64 location ...
size_t encode(const Offer& m, MutableBytes out) noexcept {
  if (m.items.size() > kMaxOfferItems || m.families.size() > kMaxFamiliesPerMessage) return 0;
  Writer w(out, kHeadBytes + 24 + m.families.size() * kFamilyBytes + m.items.size() * kOfferItemBytes, Type::offer,
           m.items.size(), m.request);
  if (!w.fits()) return 0;
  w.put(m.lease);
  w.put(m.lease_ns);
  w.put(static_cast<uint32_t>(m.families.size()));
  w.put(uint32_t{0});
  w.put(m.families);
  for (const OfferItem& item : m.items) {
    w.put(item.name);
    w.put(item.uses);
    w.put(item.priority);
    w.put(uint8_t{0});
    w.put(uint16_t{0});
    w.put(item.head_bytes);
    w.put(uint32_t{0});
    w.put(item.payload_bytes);
    w.put(item.location);
  }
  return w.bytes();
}

Status decode(ConstBytes body, Offer& out) {
  Head head;
  Reader r(body, Type::offer, head);
  out.request = head.request;
  out.lease = r.get<uint64_t>();
  out.lease_ns = r.get<uint64_t>();
  const auto families = r.get<uint32_t>();
  r.zero<uint32_t>();
  r.get(out.families, families);
  out.items.clear();
  if (r.room(head.count, kMaxOfferItems, kOfferItemBytes)) {
    out.items.resize(head.count);
    for (OfferItem& item : out.items) {
      r.get(item.name, out.families.size());
      item.uses = r.get<uint16_t>();
      item.priority = r.get<uint8_t>();
      r.zero<uint8_t>();
      r.zero<uint16_t>();
      item.head_bytes = r.get<uint32_t>();
      r.zero<uint32_t>();
      item.payload_bytes = r.get<uint64_t>();
      item.location = r.get<uint64_t>();
    }
  }
  return r.end("peer: an offer is damaged");
}

// want: head | u32 index ...
size_t encode(const Want& m, MutableBytes out) noexcept {
  if (m.items.size() > kMaxOfferItems) return 0;
  Writer w(out, kHeadBytes + m.items.size() * 4, Type::want, m.items.size(), m.request);
  if (!w.fits()) return 0;
  for (const uint32_t index : m.items) w.put(index);
  return w.bytes();
}

Status decode(ConstBytes body, Want& out) {
  Head head;
  Reader r(body, Type::want, head);
  out.request = head.request;
  out.items.clear();
  if (r.room(head.count, kMaxOfferItems, 4)) {
    out.items.resize(head.count);
    for (size_t i = 0; i < out.items.size(); ++i) {
      out.items[i] = r.get<uint32_t>();
      if (out.items[i] >= kMaxOfferItems || (i > 0 && out.items[i] <= out.items[i - 1])) {
        return {Code::damaged, "peer: an answer to an offer is damaged"};
      }
    }
  }
  return r.end("peer: an answer to an offer is damaged");
}

}  // namespace kvbm::cluster::wire
