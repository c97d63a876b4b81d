#include "cluster/wire/wire.h"

#include "cluster/wire/wire_fields.h"
#include "copy/transport_abi.h"

namespace kvbm::cluster::wire {
namespace {

static_assert(kMaxMessage == KVBM_TRANSPORT_MESSAGE_BYTES);
static_assert(kHeadBytes + kMaxReleases * 8 <= kMaxBody);

bool known(uint8_t type) noexcept {
  return (type >= static_cast<uint8_t>(Type::find) && type <= static_cast<uint8_t>(Type::bye)) ||
         type == static_cast<uint8_t>(Type::session) || type == static_cast<uint8_t>(Type::host);
}

// Returns true for messages that are a head only.
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
  return Head{static_cast<Type>(type), load_le<uint64_t>(body.data() + 8), load_le<uint32_t>(body.data() + 4)};
}

// renew, granted: head | u64 lease, u64 lease_ns
size_t encode(const Lease& m, MutableBytes out) noexcept {
  Writer w(out, kHeadBytes + 16, m.type, 0, m.request);
  if (!w.fits()) return 0;
  w.put(m.lease);
  w.put(m.lease_ns);
  return w.bytes();
}

Status decode(ConstBytes body, Lease& out) {
  const auto said = peek(body);
  const bool renews = said.ok() && said.value().type == Type::renew;
  Head head;
  Reader r(body, renews ? Type::renew : Type::granted, head);
  r.no_items(head);
  out = {head.type, head.request, r.get<uint64_t>(), r.get<uint64_t>()};
  return r.end("peer: a message about a lease is damaged");
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

// status: head | u64 capacity, u64 used, u64 weight, u64 records, u32 largest block, u32 zero
size_t encode(const NodeStatus& m, MutableBytes out) noexcept {
  Writer w(out, kHeadBytes + 40, Type::status, 0, m.request);
  if (!w.fits()) return 0;
  w.put(m.capacity_bytes);
  w.put(m.used_bytes);
  w.put(m.weight);
  w.put(m.records);
  w.put(m.block_bytes);
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
  out.block_bytes = r.get<uint32_t>();
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

size_t encode(const Head& m, MutableBytes out) noexcept {
  if (!plain(m.type)) return 0;
  Writer w(out, kHeadBytes, m.type, m.count, m.request);
  return w.fits() ? w.bytes() : 0;
}

Status decode(ConstBytes body, Head& out) {
  const auto head = peek(body);
  if (!head.ok()) return head.status();
  if (!plain(head.value().type) || body.size() != kHeadBytes)
    return {Code::damaged, "peer: a short message is damaged"};
  out = head.value();
  return {};
}

}  // namespace kvbm::cluster::wire
