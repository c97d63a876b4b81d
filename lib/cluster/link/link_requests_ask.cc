// The requesting half of a link: makes messages of operations.
#include "cluster/link/link_requests.h"

#include <algorithm>

#include "cluster/link/peer_link.h"

namespace kvbm::cluster {

bool LinkRequests::issue(uint64_t id) {
  Operation& op = *operations_.get(id);
  if (op.kind == Kind::find) return issue_find(id, op);
  if (op.kind == Kind::fetch) return issue_fetch(id, op);
  if (op.kind == Kind::offer) return issue_offer(id, op);
  return issue_small(id, op);
}

uint64_t LinkRequests::add_request(uint64_t id, Operation& operation, uint32_t first, uint32_t count) {
  const uint64_t request = requests_.add({id, first, count, count, host_.executor.clock().now_ns()});
  operation.requests.push_back(request);
  return request;
}

bool LinkRequests::issue_find(uint64_t id, Operation& op) {
  wire::Find& m = host_.scratch.find;
  m.families.clear();
  m.items.clear();
  m.first = op.next;
  m.lease_ns = op.find->lease_ns;
  while (op.next < op.find->ids.size() && m.items.size() < wire::kMaxFindItems) {
    const Identity& identity = op.find->ids[op.next];
    const uint32_t family = place_family(m.families, host_.families.get(identity.family));
    if (family == wire::kMaxFamiliesPerMessage) break;
    m.items.push_back({identity.key, static_cast<uint16_t>(family)});
    ++op.next;
  }
  m.request = add_request(id, op, m.first, static_cast<uint32_t>(m.items.size()));
  send(wire::encode(m, link_.body()));
  return true;
}

// Names an item's staging to the transport. False: the item has ended instead.
bool LinkRequests::post_item(uint64_t id, Operation& op, uint32_t index) {
  FetchItem& item = op.fetch->items[index];
  Item& state = op.items[index];
  uint64_t token = 0;
  const Code code = link_.port().post(next_tag_++, item.staging, token);
  if (code != Code::ok) {
    resolve(id, op, index, code == Code::stale_handle || code == Code::closed ? Code::owner_gone : code);
    return false;
  }
  state.token = token;
  state.state = ItemState::asked;
  transfers_.insert(token, {id, index, item.staging.size(), op.fetch->owner, item.cookie});
  stats_.posted_bytes += item.staging.size();
  return true;
}

bool LinkRequests::issue_fetch(uint64_t id, Operation& op) {
  wire::Fetch& m = host_.scratch.fetch;
  m.families.clear();
  m.items.clear();
  const uint64_t now = host_.executor.clock().now_ns();
  m.coding = op.fetch->coding;
  m.budget_ns = op.deadline_ns == kNever ? kNever : op.deadline_ns - std::min(now, op.deadline_ns);
  const uint32_t first = op.next;
  for (; op.next < op.items.size() && m.items.size() < wire::kMaxFetchItems; ++op.next) {
    const FetchItem& item = op.fetch->items[op.next];
    const bool full =
        stats_.posted_bytes != 0 && stats_.posted_bytes + item.staging.size() > host_.limits.staging_bytes;
    if (full) break;
    const uint32_t family = place_family(m.families, host_.families.get(item.id.family));
    if (family == wire::kMaxFamiliesPerMessage) break;
    wire::FetchItem asked;
    asked.name = {item.id.key, static_cast<uint16_t>(family)};
    asked.first_leaf = item.first_leaf;
    asked.leaves = item.leaves;
    asked.location = item.location;
    asked.tag = next_tag_;
    asked.room = item.staging.size();
    if (stats_.quarantined_bytes > host_.limits.quarantine_bytes || item.staging.empty()) {
      // An item that ends here would leave a gap in the message's indexes, so the message ends before it.
      if (!m.items.empty()) break;
      resolve(id, op, op.next, item.staging.empty() ? Code::invalid_argument : Code::no_room);
      if (operations_.get(id) == nullptr) return true;
      ++op.next;
      return true;
    }
    if (!post_item(id, op, op.next)) {
      if (operations_.get(id) == nullptr) return true;
      ++op.next;
      break;
    }
    m.items.push_back(asked);
  }
  if (m.items.empty()) return op.next != first;
  m.request = add_request(id, op, first, static_cast<uint32_t>(m.items.size()));
  send(wire::encode(m, link_.body()));
  return true;
}

bool LinkRequests::issue_offer(uint64_t id, Operation& op) {
  wire::Offer& m = host_.scratch.offer;
  m.families.clear();
  m.items.clear();
  m.lease = op.lease;
  m.lease_ns = op.offer->lease_ns;
  for (const Offered& item : op.offer->items) {
    const uint32_t family = place_family(m.families, host_.families.get(item.id.family));
    if (family == wire::kMaxFamiliesPerMessage || m.items.size() == wire::kMaxOfferItems) {
      finish_small(id, op, Code::invalid_argument);
      return true;
    }
    m.items.push_back({{item.id.key, static_cast<uint16_t>(family)},
                       item.uses,
                       item.priority,
                       item.head_bytes,
                       item.payload_bytes,
                       item.location});
  }
  m.request = add_request(id, op, 0, static_cast<uint32_t>(m.items.size()));
  send(wire::encode(m, link_.body()));
  return true;
}

bool LinkRequests::issue_small(uint64_t id, Operation& op) {
  const uint64_t request = add_request(id, op, 0, 1);
  if (op.kind == Kind::status) {
    send(wire::encode(wire::Head{wire::Type::ask_status, request}, link_.body()));
  } else if (op.kind == Kind::renew) {
    op.renew.request = request;
    send(wire::encode(op.renew, link_.body()));
  } else {
    op.invalidate.request = request;
    send(wire::encode(op.invalidate, link_.body()));
  }
  return true;
}

}  // namespace kvbm::cluster
