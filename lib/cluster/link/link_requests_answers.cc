// The requesting half of a link: handles the peer's answers.
#include "cluster/link/link_requests.h"

#include <algorithm>

#include "cluster/link/peer_link.h"

namespace kvbm::cluster {
namespace {

// Maps an item's code to those that a peer may send; any other is an error of the peer.
Code code_from_peer(int32_t value) noexcept {
  const auto code = static_cast<Code>(value);
  switch (code) {
    case Code::miss:
    case Code::damaged:
    case Code::mismatch:
    case Code::deadline:
    case Code::cancelled:
    case Code::no_room:
    case Code::at_limit:
    case Code::again:
    case Code::no_memory:
    case Code::stale_handle:
    case Code::invalid_argument:
    case Code::unsupported:
    case Code::tier_disabled:
      return code;
    default:
      return Code::io_error;
  }
}

}  // namespace

Status LinkRequests::take(const wire::Head& head, ConstBytes body) {
  switch (head.type) {
    case wire::Type::found:
      return take_found(head.request, body);
    case wire::Type::fetched:
      return take_fetched(head.request, body);
    case wire::Type::want:
      return take_want(head.request, body);
    case wire::Type::failed:
      return take_failed(head.request, body);
    default:
      return take_small(head, body);
  }
}

// An answer to a request that has ended is only late; but a lease that it grants must be released.
Status LinkRequests::take_found(uint64_t request, ConstBytes body) {
  wire::Found& m = host_.scratch.found;
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  const Request* asked = requests_.get(request);
  Operation* op = asked == nullptr ? nullptr : operations_.get(asked->operation);
  if (op == nullptr) {
    if (m.lease != 0) send(wire::encode(wire::Release{{m.lease}}, link_.body()));
    return {};
  }
  if (op->kind != Kind::find || m.first != asked->first || m.items.size() != asked->count) {
    return {Code::damaged, "peer: an answer does not fit its question"};
  }
  std::copy(m.items.begin(), m.items.end(), op->find->found.begin() + m.first);
  if (m.lease != 0) {
    const uint64_t from = asked->asked_ns;  // the grant began later than that
    op->find->leases.push_back({m.lease, from > kNever - m.lease_ns ? kNever : from + m.lease_ns});
  }
  op->unresolved -= asked->count;
  const uint64_t id = asked->operation;
  answered(request, asked->count);
  if (op->unresolved == 0) finish(id);
  return {};
}

Status LinkRequests::take_fetched(uint64_t request, ConstBytes body) {
  wire::Fetched& m = host_.scratch.fetched;
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  const Request* asked = requests_.get(request);
  if (asked == nullptr) return {};
  Operation* op = operations_.get(asked->operation);
  if (op->kind != Kind::fetch) return {Code::damaged, "peer: an answer does not fit its question"};
  for (const wire::FetchedItem& said : m.items) {
    if (said.index >= asked->count) return {Code::damaged, "peer: an answer does not fit its question"};
    const uint32_t index = asked->first + said.index;
    Item& item = op->items[index];
    if (item.state != ItemState::asked) continue;
    item.state = ItemState::ending;
    item.ending = code_from_peer(said.code);
    op->fetch->items[index].head_bytes = said.head_bytes;
    op->fetch->items[index].payload_bytes = said.payload_bytes;
    // The item ends with its post, so that the staging is quiet by then.
    link_.port().cancel(item.token);
  }
  return {};
}

Status LinkRequests::take_want(uint64_t request, ConstBytes body) {
  wire::Want& m = host_.scratch.want;
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  const Request* asked = requests_.get(request);
  if (asked == nullptr) return {};
  Operation* op = operations_.get(asked->operation);
  if (op->kind != Kind::offer || (!m.items.empty() && m.items.back() >= asked->count)) {
    return {Code::damaged, "peer: an answer does not fit its question"};
  }
  op->offer->wanted = m.items;
  finish_small(asked->operation, *op, Code::ok);
  return {};
}

Status LinkRequests::take_small(const wire::Head& head, ConstBytes body) {
  const Request* asked = requests_.get(head.request);
  Operation* op = asked == nullptr ? nullptr : operations_.get(asked->operation);
  wire::NodeStatus status;
  wire::Lease granted;
  wire::Head plain;
  Status decoded;
  Kind kind = Kind::status;
  Code code = Code::ok;
  if (head.type == wire::Type::status) {
    decoded = wire::decode(body, status);
  } else if (head.type == wire::Type::granted) {
    kind = Kind::renew;
    decoded = wire::decode(body, granted);
    if (granted.lease_ns == 0) code = Code::stale_handle;
  } else if (head.type == wire::Type::invalidated) {
    kind = Kind::invalidate;
    decoded = wire::decode(body, plain);
    if (plain.count != 0) code = code_from_peer(-static_cast<int32_t>(plain.count));
  } else {
    return {Code::damaged, "peer: it sent what only its own side may ask"};
  }
  if (!decoded.ok()) return decoded;
  if (op == nullptr) return {};
  if (op->kind != kind) return {Code::damaged, "peer: an answer does not fit its question"};
  op->status = status;
  op->renew.lease_ns = granted.lease_ns;
  finish_small(asked->operation, *op, code);
  return {};
}

Status LinkRequests::take_failed(uint64_t request, ConstBytes body) {
  wire::Failed m;
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  const Request* asked = requests_.get(request);
  if (asked == nullptr) return {};
  const uint64_t id = asked->operation;
  const Request part = *asked;
  Operation* op = operations_.get(id);
  const Code code = code_from_peer(m.code);
  if (op->kind == Kind::fetch) {
    for (uint32_t i = part.first; i < part.first + part.count; ++i) {
      if (op->items[i].state != ItemState::asked) continue;
      op->items[i].state = ItemState::ending;
      op->items[i].ending = code;
      link_.port().cancel(op->items[i].token);
    }
  } else if (op->kind == Kind::find) {
    std::fill_n(op->find->status.begin() + part.first, part.count, code);
    op->unresolved -= part.count;
    answered(request, part.count);
    if (op->unresolved == 0) finish(id);
  } else {
    finish_small(id, *op, code);
  }
  return {};
}

}  // namespace kvbm::cluster
