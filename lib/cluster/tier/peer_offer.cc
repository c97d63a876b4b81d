#include "cluster/tier/peer_offer.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "cluster/placement/placement.h"

namespace kvbm::cluster {

namespace {

// Intervals at which a node is asked whether it now has a record that it wanted, and at which an offer is repeated that
// found no free lease. The first is kConfirmNs, the longest kConfirmMostNs.
constexpr uint64_t kConfirmNs = 500'000;
constexpr uint64_t kConfirmMostNs = 50'000'000;

}  // namespace

void PeerOffer::put(std::unique_ptr<tier::PutBatch> batch) {
  auto op = std::make_shared<PutOp>();
  op->batch = std::move(batch);
  op->deadline_ns = std::min(op->batch->deadline_ns, context_->executor.clock().now_ns() + context_->options.lease_ns);
  const bool open = context_->enter();
  op->batch->status.assign(op->batch->items.size(), open ? Code::no_room : Code::closed);
  op->records.resize(op->batch->items.size());
  if (!open) {
    context_->executor.post([op] { op->batch->done(*op->batch); });
    return;
  }
  context_->mesh.executor().post([self = shared_from_this(), op] { self->offer(op); });
}

void PeerOffer::offer(const std::shared_ptr<PutOp>& op) {
  ByNode by_node;
  std::array<PeerLink*, Placement::kMaxReplicas> homes{};
  const std::span<PeerLink*> some = std::span(homes).first(std::min<size_t>(context_->options.replicas, homes.size()));
  for (size_t i = 0; i < op->batch->items.size(); ++i) {
    Record& record = op->records[i];
    const size_t n = context_->mesh.homes(op->batch->items[i].id.key, some);
    for (PeerLink* const link : some.first(n)) {
      record.asked.push_back(link->peer().node);
      by_node[link->peer().node].push_back(i);
    }
    record.open = static_cast<uint8_t>(n);
  }
  op->offers = 1;
  offer_to(op, by_node);
  offered(op);
}

void PeerOffer::offer_to(const std::shared_ptr<PutOp>& op, const ByNode& by_node) {
  for (const auto& [node, all] : by_node) {
    // One family a message, so that a node with a full family table can refuse all items of a message.
    std::map<FamilyId, std::vector<size_t>> by_family;
    for (const size_t i : all) by_family[op->batch->items[i].id.family].push_back(i);
    for (const auto& [family, indexes] : by_family) {
      for (size_t first = 0; first < indexes.size(); first += wire::kMaxFamiliesPerMessage) {
        const size_t n = std::min<size_t>(wire::kMaxFamiliesPerMessage, indexes.size() - first);
        offer_some(
            op, node,
            {indexes.begin() + static_cast<ptrdiff_t>(first), indexes.begin() + static_cast<ptrdiff_t>(first + n)},
            kConfirmNs);
      }
    }
  }
}

void PeerOffer::took(PutOp& op, size_t item) {
  Record& record = op.records[item];
  --record.open;
  if (op.batch->status[item] == Code::ok) return;
  op.batch->status[item] = Code::ok;
  if (record.elsewhere != 0) context_->offers.elsewhere.fetch_add(1, std::memory_order_relaxed);
}

void PeerOffer::refused(const std::shared_ptr<PutOp>& op, std::span<const size_t> items, Code code) {
  context_->offers.refused.fetch_add(items.size(), std::memory_order_relaxed);
  // A block size that one node does not take is too large for the whole pool.
  const bool over = code == Code::mismatch || context_->mesh.executor().clock().now_ns() >= op->deadline_ns;
  ByNode by_node;
  for (const size_t i : items) {
    Record& record = op->records[i];
    --record.open;
    if (op->batch->status[i] == Code::ok) continue;
    op->batch->status[i] = code;
    NodeId node;
    if (over || record.open != 0 || !next_home(record, op->batch->items[i].id.key, node)) continue;
    record.asked.push_back(node);
    record.open = 1;
    ++record.elsewhere;
    by_node[node].push_back(i);
  }
  if (by_node.empty()) return;
  ++op->offers;
  context_->mesh.executor().post([self = shared_from_this(), op, by_node = std::move(by_node)] {
    self->offer_to(op, by_node);
    self->offered(op);
  });
}

bool PeerOffer::next_home(Record& record, const Key& key, NodeId& out) const {
  if (record.elsewhere == kMostElsewhere) return false;
  std::array<PeerLink*, Placement::kMaxReplicas> homes{};
  const size_t n = context_->mesh.homes(key, homes);
  for (PeerLink* const link : std::span(homes).first(n)) {
    out = link->peer().node;
    if (std::find(record.asked.begin(), record.asked.end(), out) == record.asked.end()) return true;
  }
  return false;
}

// Offers some records, so few that their families fit in one message.
void PeerOffer::offer_some(const std::shared_ptr<PutOp>& op, const NodeId& node, std::vector<size_t> indexes,
                           uint64_t wait) {
  PeerLink* const link = context_->mesh.link_to(node);
  if (link == nullptr) return refused(op, indexes, Code::owner_gone);
  const size_t now = std::min(link->lease_room(), indexes.size());
  if (now < indexes.size()) {
    offer_later(op, node, {indexes.begin() + static_cast<std::ptrdiff_t>(now), indexes.end()}, wait);
    indexes.resize(now);
  }
  if (indexes.empty()) return;
  auto batch = std::make_unique<OfferBatch>();
  batch->lease_ns = context_->options.lease_ns;
  batch->deadline_ns = std::min(op->batch->deadline_ns, context_->latest_ns());
  for (const size_t i : indexes) {
    const tier::PutItem& put = op->batch->items[i];
    Offered one;
    one.id = put.id;
    one.uses = put.uses;
    one.priority = put.priority;
    one.head_bytes = static_cast<uint32_t>(put.head.size());
    one.payload_bytes = put.payload.size();
    batch->items.push_back(one);
  }
  batch->done = [self = shared_from_this(), op, node, weak = link->weak_from_this(),
                 indexes = std::move(indexes)](OfferBatch& answer) {
    self->wanted(op, {node, weak, answer.lease}, indexes, answer);
    self->offered(op);
  };
  ++op->offers;
  link->offer(std::move(batch));
}

// Retries later: the node has been offered as much as leases allow, and the fetches in progress will end soon.
void PeerOffer::offer_later(const std::shared_ptr<PutOp>& op, const NodeId& node, std::vector<size_t> indexes,
                            uint64_t wait) {
  const uint64_t now = context_->mesh.executor().clock().now_ns();
  if (now >= op->deadline_ns) return refused(op, indexes, Code::deadline);
  ++op->offers;
  context_->mesh.executor().post_at(now + wait,
                                    [self = shared_from_this(), op, node, indexes = std::move(indexes), wait] {
                                      self->offer_some(op, node, indexes, std::min(wait * 2, kConfirmMostNs));
                                      self->offered(op);
                                    });
}

void PeerOffer::wanted(const std::shared_ptr<PutOp>& op, const Taking& by, const std::vector<size_t>& indexes,
                       const OfferBatch& answer) {
  if (answer.status != Code::ok) return refused(op, indexes, answer.status);
  std::vector<size_t> coming;
  std::vector<size_t> no_room;
  std::vector<size_t> too_large;
  for (const uint32_t w : answer.wanted) coming.push_back(indexes[w]);
  for (const size_t i : indexes) {
    if (std::find(coming.begin(), coming.end(), i) != coming.end()) continue;
    const bool large = context_->mesh.too_large(by.node, op->batch->items[i].payload.size());
    (large ? too_large : no_room).push_back(i);
  }
  if (!coming.empty()) confirm_later(op, by, std::move(coming), kConfirmNs);
  refused(op, too_large, Code::mismatch);
  refused(op, no_room, Code::no_room);
}

// Asks later whether the node has the records: they count as stored once the node reports them; until then they may
// still be in flight.
void PeerOffer::confirm_later(const std::shared_ptr<PutOp>& op, const Taking& by, std::vector<size_t> indexes,
                              uint64_t wait) {
  ++op->offers;
  const uint64_t now = context_->mesh.executor().clock().now_ns();
  context_->mesh.executor().post_at(now + wait,
                                    [self = shared_from_this(), op, by, indexes = std::move(indexes), wait] {
                                      self->confirm(op, by, indexes, wait);
                                      self->offered(op);
                                    });
}

void PeerOffer::confirm(const std::shared_ptr<PutOp>& op, const Taking& by, const std::vector<size_t>& indexes,
                        uint64_t wait) {
  PeerLink* const link = context_->mesh.link_to(by.node);
  const bool late = context_->mesh.executor().clock().now_ns() >= op->deadline_ns;
  if (link == nullptr || late) return refused(op, indexes, late ? Code::deadline : Code::owner_gone);
  // Read before the query is sent: a node releases the lease once it has registered what arrived. So records that it
  // does not have by then will not arrive.
  const std::shared_ptr<PeerLink> held_by = by.link.lock();
  const bool over = held_by == nullptr || !held_by->holds(by.lease);
  auto batch = std::make_unique<FindBatch>();
  for (const size_t i : indexes) batch->ids.push_back(op->batch->items[i].id);
  batch->deadline_ns = op->deadline_ns;
  batch->done = [self = shared_from_this(), op, by, facts = link->peer(), indexes, wait, over](FindBatch& answer) {
    std::vector<size_t> open = self->confirmed(op, facts, indexes, answer);
    if (over) {
      self->refused(op, open, Code::io_error);
    } else if (!open.empty()) {
      self->confirm_later(op, by, std::move(open), std::min(wait * 2, kConfirmMostNs));
    }
    self->offered(op);
  };
  ++op->offers;
  link->find(std::move(batch));
}

std::vector<size_t> PeerOffer::confirmed(const std::shared_ptr<PutOp>& op, const NodeFacts& node,
                                         const std::vector<size_t>& indexes, const FindBatch& answer) {
  std::vector<size_t> open;
  for (size_t k = 0; k < indexes.size(); ++k) {
    const tier::PutItem& put = op->batch->items[indexes[k]];
    const wire::FoundItem& found = answer.found[k];
    if (answer.status[k] != Code::ok) {
      refused(op, {&indexes[k], 1}, answer.status[k]);
    } else if (found.present == 0) {
      open.push_back(indexes[k]);
    } else {
      took(*op, indexes[k]);
      context_->places.count_put(put.payload.size());
      context_->places.learn(node, put.id, found);
    }
  }
  return open;
}

void PeerOffer::offered(const std::shared_ptr<PutOp>& op) {
  if (--op->offers != 0) return;
  const auto kept = std::count(op->batch->status.begin(), op->batch->status.end(), Code::ok);
  context_->places.count_put_errors(op->batch->status.size() - static_cast<size_t>(kept));
  context_->executor.post([self = shared_from_this(), op] {
    op->batch->done(*op->batch);
    self->context_->leave();
  });
}

}  // namespace kvbm::cluster
