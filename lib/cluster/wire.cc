#include "cluster/wire.h"

#include "copy/transport_abi.h"

namespace kvbm::cluster::wire {
namespace {

static_assert(kMaxMessage == KVBM_TRANSPORT_MESSAGE_BYTES);
constexpr size_t kFamilies = kMaxFamiliesPerMessage * kFamilyBytes;
static_assert(kHeadBytes + 24 + kFamilies + kMaxFindItems * kFindItemBytes <= kMaxBody);
static_assert(kHeadBytes + 24 + kMaxFindItems * kFoundItemBytes <= kMaxBody);
static_assert(kHeadBytes + 16 + kFamilies + kMaxFetchItems * kFetchItemBytes <= kMaxBody);
static_assert(kHeadBytes + kMaxFetchItems * kFetchedItemBytes <= kMaxBody);
static_assert(kHeadBytes + 24 + kFamilies + kMaxOfferItems * kOfferItemBytes <= kMaxBody);
static_assert(kHeadBytes + kMaxReleases * 8 <= kMaxBody);

// Writes what was sized before: put() has no check of its own.
class Writer {
 public:
  Writer(MutableBytes out, size_t bytes, Type type, size_t count, uint64_t request) noexcept
      : fits_(bytes <= out.size() && bytes <= kMaxBody), bytes_(bytes), at_(out.data()) {
    if (!fits_) return;
    put(static_cast<uint8_t>(type));
    put(uint8_t{0});
    put(uint16_t{0});
    put(static_cast<uint32_t>(count));
    put(request);
  }
  [[nodiscard]] bool fits() const noexcept { return fits_; }
  [[nodiscard]] size_t bytes() const noexcept { return bytes_; }

  template <std::integral T>
  void put(T v) noexcept {
    store_le(at_, v);
    at_ += sizeof v;
  }
  template <size_t N>
  void put(const std::array<uint8_t, N>& v) noexcept {
    std::memcpy(at_, v.data(), N);
    at_ += N;
  }
  void put(const Name& name) noexcept {
    put(name.key.bytes);
    put(name.family);
  }
  void put(const std::vector<Family>& families) noexcept {
    for (const Family& f : families) {
      put(f.ns.bytes);
      put(f.geometry);
      put(f.component);
      put(f.shard.first_layer);
      put(f.shard.layers);
      put(f.shard.first_head);
      put(f.shard.heads);
      put(f.shard.replicated);
      put(uint32_t{0});
    }
  }

 private:
  bool fits_;
  size_t bytes_;
  std::byte* at_;
};

// Reads with one check per field; after the first one that fails everything is zero and ok() is false.
class Reader {
 public:
  Reader(ConstBytes body, Type type, Head& head) noexcept : at_(body.data()), left_(body.size()) {
    const auto said = get<uint8_t>();
    zero<uint8_t>();
    zero<uint16_t>();
    head.count = get<uint32_t>();
    head.request = get<uint64_t>();
    head.type = static_cast<Type>(said);
    if (head.type != type) ok_ = false;
  }
  template <std::integral T>
  T get() noexcept {
    if (left_ < sizeof(T)) {
      ok_ = false;
      left_ = 0;
      return 0;
    }
    const T v = load_le<T>(at_);
    at_ += sizeof(T);
    left_ -= sizeof(T);
    return v;
  }
  template <std::integral T>
  void zero() noexcept {
    if (get<T>() != 0) ok_ = false;
  }
  template <size_t N>
  void get(std::array<uint8_t, N>& v) noexcept {
    if (left_ < N) {
      ok_ = false;
      left_ = 0;
      return;
    }
    std::memcpy(v.data(), at_, N);
    at_ += N;
    left_ -= N;
  }
  void get(Name& name, size_t families) noexcept {
    get(name.key.bytes);
    name.family = get<uint16_t>();
    if (name.family >= families) ok_ = false;
  }
  // Messages without items say so.
  void no_items(const Head& head) noexcept {
    if (head.count != 0) ok_ = false;
  }
  // A count of elements of `each` bytes that all must be here.
  bool room(uint64_t count, uint64_t limit, size_t each) noexcept {
    if (count > limit || count * each > left_) ok_ = false;
    return ok_;
  }
  void get(std::vector<Family>& families, uint32_t count) {
    families.clear();
    if (!room(count, kMaxFamiliesPerMessage, kFamilyBytes)) return;
    families.resize(count);
    for (Family& f : families) {
      get(f.ns.bytes);
      f.geometry = get<uint64_t>();
      f.component = get<uint16_t>();
      f.shard.first_layer = get<uint16_t>();
      f.shard.layers = get<uint16_t>();
      f.shard.first_head = get<uint16_t>();
      f.shard.heads = get<uint16_t>();
      f.shard.replicated = get<uint16_t>();
      zero<uint32_t>();
    }
  }
  // Nothing may be left over.
  [[nodiscard]] Status end(const char* text) const {
    if (ok_ && left_ == 0) return {};
    return {Code::damaged, text};
  }

 private:
  const std::byte* at_;
  size_t left_;
  bool ok_ = true;
};

bool known(uint8_t type) noexcept {
  return (type >= static_cast<uint8_t>(Type::find) && type <= static_cast<uint8_t>(Type::bye)) ||
         type == static_cast<uint8_t>(Type::session) || type == static_cast<uint8_t>(Type::host);
}

bool plain(Type type) noexcept {
  return type == Type::ping || type == Type::pong || type == Type::ask_status || type == Type::cancel ||
         type == Type::invalidated || type == Type::bye;
}

}  // namespace

Result<Head> peek(ConstBytes body) {
  if (body.size() < kHeadBytes || body.size() > kMaxBody || load_le<uint16_t>(body.data() + 2) != 0 ||
      body[1] != std::byte{0}) {
    return Status(Code::damaged, "peer: the head of a message is damaged");
  }
  const auto type = std::to_integer<uint8_t>(body[0]);
  if (!known(type)) return Status(Code::unsupported, "peer: a message of an unknown type");
  return Head{static_cast<Type>(type), load_le<uint32_t>(body.data() + 4), load_le<uint64_t>(body.data() + 8)};
}

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

// fetch: head | u64 budget_ns, u32 families, u32 zero | families | key, u16 family, u16 zero, u32 first leaf, u32
// leaves, u32 zero, u64 location, u64 tag, u64 room ...
size_t encode(const Fetch& m, MutableBytes out) noexcept {
  if (m.items.size() > kMaxFetchItems || m.families.size() > kMaxFamiliesPerMessage) return 0;
  Writer w(out, kHeadBytes + 16 + m.families.size() * kFamilyBytes + m.items.size() * kFetchItemBytes, Type::fetch,
           m.items.size(), m.request);
  if (!w.fits()) return 0;
  w.put(m.budget_ns);
  w.put(static_cast<uint32_t>(m.families.size()));
  w.put(uint32_t{0});
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
  r.zero<uint32_t>();
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

// renew, granted: head | u64 lease, u64 lease_ns
size_t encode(const Renew& m, MutableBytes out) noexcept {
  Writer w(out, kHeadBytes + 16, Type::renew, 0, m.request);
  if (!w.fits()) return 0;
  w.put(m.lease);
  w.put(m.lease_ns);
  return w.bytes();
}

Status decode(ConstBytes body, Renew& out) {
  Head head;
  Reader r(body, Type::renew, head);
  r.no_items(head);
  out = {head.request, r.get<uint64_t>(), r.get<uint64_t>()};
  return r.end("peer: a request for a lease is damaged");
}

size_t encode(const Granted& m, MutableBytes out) noexcept {
  Writer w(out, kHeadBytes + 16, Type::granted, 0, m.request);
  if (!w.fits()) return 0;
  w.put(m.lease);
  w.put(m.lease_ns);
  return w.bytes();
}

Status decode(ConstBytes body, Granted& out) {
  Head head;
  Reader r(body, Type::granted, head);
  r.no_items(head);
  out = {head.request, r.get<uint64_t>(), r.get<uint64_t>()};
  return r.end("peer: the answer about a lease is damaged");
}

// release: head | u64 lease ...
size_t encode(const Release& m, MutableBytes out) noexcept {
  if (m.leases.size() > kMaxReleases) return 0;
  Writer w(out, kHeadBytes + m.leases.size() * 8, Type::release, m.leases.size(), 0);
  if (!w.fits()) return 0;
  for (const uint64_t lease : m.leases) w.put(lease);
  return w.bytes();
}

Status decode(ConstBytes body, Release& out) {
  Head head;
  Reader r(body, Type::release, head);
  out.leases.clear();
  if (head.request != 0) return {Code::damaged, "peer: a release is damaged"};
  if (r.room(head.count, kMaxReleases, 8)) {
    out.leases.resize(head.count);
    for (uint64_t& lease : out.leases) lease = r.get<uint64_t>();
  }
  return r.end("peer: a release is damaged");
}

// status: head | u64 capacity, u64 used, u64 weight, u64 records, u32 software, u32 zero
size_t encode(const NodeStatus& m, MutableBytes out) noexcept {
  Writer w(out, kHeadBytes + 40, Type::status, 0, m.request);
  if (!w.fits()) return 0;
  w.put(m.capacity_bytes);
  w.put(m.used_bytes);
  w.put(m.weight);
  w.put(m.records);
  w.put(m.software);
  w.put(uint32_t{0});
  return w.bytes();
}

Status decode(ConstBytes body, NodeStatus& out) {
  Head head;
  Reader r(body, Type::status, head);
  r.no_items(head);
  out.request = head.request;
  out.capacity_bytes = r.get<uint64_t>();
  out.used_bytes = r.get<uint64_t>();
  out.weight = r.get<uint64_t>();
  out.records = r.get<uint64_t>();
  out.software = r.get<uint32_t>();
  r.zero<uint32_t>();
  return r.end("peer: a status is damaged");
}

// invalidate: head | namespace id, u64 epoch
size_t encode(const Invalidate& m, MutableBytes out) noexcept {
  Writer w(out, kHeadBytes + 24, Type::invalidate, 0, m.request);
  if (!w.fits()) return 0;
  w.put(m.base.bytes);
  w.put(m.epoch);
  return w.bytes();
}

Status decode(ConstBytes body, Invalidate& out) {
  Head head;
  Reader r(body, Type::invalidate, head);
  r.no_items(head);
  out.request = head.request;
  r.get(out.base.bytes);
  out.epoch = r.get<uint64_t>();
  return r.end("peer: an invalidation is damaged");
}

// failed: head | i32 code, u32 first
size_t encode(const Failed& m, MutableBytes out) noexcept {
  Writer w(out, kHeadBytes + 8, Type::failed, 0, m.request);
  if (!w.fits()) return 0;
  w.put(m.code);
  w.put(m.first);
  return w.bytes();
}

Status decode(ConstBytes body, Failed& out) {
  Head head;
  Reader r(body, Type::failed, head);
  r.no_items(head);
  out.request = head.request;
  out.code = r.get<int32_t>();
  out.first = r.get<uint32_t>();
  return r.end("peer: a refusal is damaged");
}

size_t encode(const Plain& m, MutableBytes out) noexcept {
  if (!plain(m.type)) return 0;
  Writer w(out, kHeadBytes, m.type, m.count, m.request);
  return w.fits() ? w.bytes() : 0;
}

Status decode(ConstBytes body, Plain& out) {
  const auto head = peek(body);
  if (!head.ok()) return head.status();
  if (!plain(head.value().type) || body.size() != kHeadBytes)
    return {Code::damaged, "peer: a short message is damaged"};
  out = {head.value().type, head.value().request, head.value().count};
  return {};
}

}  // namespace kvbm::cluster::wire
