#include "cluster/link_requests.h"

#include <algorithm>

namespace kvbm::cluster {
namespace {

// What a peer may say of an item; anything else it says is its fault.
Code code_from_peer(int32_t value) noexcept {
  const auto code = static_cast<Code>(value);
  switch (code) {
    case Code::miss:
    case Code::damaged:
    case Code::mismatch:
    case Code::deadline:
    case Code::cancelled:
    case Code::no_room:
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

uint32_t place_family(std::vector<Family>& families, const Family& family) {
  // Most messages have one; the last one used is the likeliest.
  for (size_t i = families.size(); i > 0; --i) {
    if (families[i - 1] == family) return static_cast<uint32_t>(i - 1);
  }
  if (families.size() == wire::kMaxFamiliesPerMessage) return wire::kMaxFamiliesPerMessage;
  families.push_back(family);
  return static_cast<uint32_t>(families.size() - 1);
}

uint64_t LinkRequests::start(Operation operation) {
  const uint64_t deadline = operation.deadline_ns;
  const uint64_t id = operations_.add(std::move(operation));
  Operation& here = *operations_.get(id);
  stats_.unfinished = operations_.size();
  if (ended_ != Code::ok) {
    abandon(id, here, ended_);
    return 0;
  }
  if (deadline <= host_.executor.clock().now_ns()) {
    abandon(id, here, Code::deadline);
    return 0;
  }
  next_deadline_ = std::min(next_deadline_, deadline);
  enqueue(id, here);
  return id;
}

void LinkRequests::enqueue(uint64_t id, Operation& operation) {
  if (operation.queued) return;
  operation.queued = true;
  queue_.push_back(id);
}

uint64_t LinkRequests::find(std::unique_ptr<FindBatch> batch) {
  Operation op;
  op.kind = Kind::find;
  op.deadline_ns = batch->deadline_ns;
  op.unresolved = static_cast<uint32_t>(batch->ids.size());
  batch->found.assign(batch->ids.size(), {});
  batch->status.assign(batch->ids.size(), Code::ok);
  stats_.finds += batch->ids.size();
  op.find = std::move(batch);
  if (op.unresolved == 0) {
    finished_.push_back(std::move(op));
    return 0;
  }
  return start(std::move(op));
}

uint64_t LinkRequests::fetch(std::unique_ptr<FetchBatch> batch) {
  Operation op;
  op.kind = Kind::fetch;
  op.deadline_ns = batch->deadline_ns;
  op.unresolved = static_cast<uint32_t>(batch->items.size());
  op.items.resize(batch->items.size());
  stats_.fetches += batch->items.size();
  op.fetch = std::move(batch);
  if (op.unresolved == 0) {
    finished_.push_back(std::move(op));
    return 0;
  }
  return start(std::move(op));
}

uint64_t LinkRequests::offer(std::unique_ptr<OfferBatch> batch, uint64_t lease) {
  Operation op;
  op.kind = Kind::offer;
  op.deadline_ns = batch->deadline_ns;
  op.lease = lease;
  op.offer = std::move(batch);
  return start(std::move(op));
}

uint64_t LinkRequests::ask_status(uint64_t deadline_ns, StatusDone done) {
  Operation op;
  op.kind = Kind::status;
  op.deadline_ns = deadline_ns;
  op.status_done = std::move(done);
  return start(std::move(op));
}

uint64_t LinkRequests::renew(uint64_t lease, uint64_t lease_ns, uint64_t deadline_ns, LeaseDone done) {
  Operation op;
  op.kind = Kind::renew;
  op.deadline_ns = deadline_ns;
  op.renew.lease = lease;
  op.renew.lease_ns = lease_ns;
  op.lease_done = std::move(done);
  return start(std::move(op));
}

uint64_t LinkRequests::invalidate(const NamespaceId& base, uint64_t epoch, uint64_t deadline_ns, CodeDone done) {
  Operation op;
  op.kind = Kind::invalidate;
  op.deadline_ns = deadline_ns;
  op.invalidate.base = base;
  op.invalidate.epoch = epoch;
  op.code_done = std::move(done);
  return start(std::move(op));
}

bool LinkRequests::cancel(uint64_t operation) {
  Operation* op = operations_.get(operation);
  if (op == nullptr) return false;
  ++stats_.cancelled;
  abandon(operation, *op, Code::cancelled);
  return true;
}

void LinkRequests::begin(uint32_t peer_limit) { limit_ = std::max(1U, std::min(host_.limits.requests, peer_limit)); }

void LinkRequests::send(size_t bytes) { outlet_.commit(bytes); }

void LinkRequests::pump() {
  while (!queue_.empty() && ended_ == Code::ok && limit_ != 0 && outlet_.clear() && requests_.size() < limit_) {
    const uint64_t id = queue_.front();
    Operation* op = operations_.get(id);
    if (op == nullptr) {
      queue_.pop_front();
      continue;
    }
    if (!issue(id)) return;  // waits for staging
    op = operations_.get(id);
    const bool more = op != nullptr && ((op->kind == Kind::find && op->next < op->find->ids.size()) ||
                                        (op->kind == Kind::fetch && op->next < op->items.size()));
    if (more) continue;
    if (op != nullptr) op->queued = false;
    queue_.pop_front();
  }
}

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
  send(wire::encode(m, outlet_.body()));
  return true;
}

// Names an item's staging to the transport. False: it has ended instead.
bool LinkRequests::post_item(uint64_t id, Operation& op, uint32_t index) {
  FetchItem& item = op.fetch->items[index];
  Item& state = op.items[index];
  uint64_t token = 0;
  const Code code = outlet_.port().post(next_tag_++, item.staging, token);
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
  send(wire::encode(m, outlet_.body()));
  return true;
}

bool LinkRequests::issue_offer(uint64_t id, Operation& op) {
  wire::Offer& m = host_.scratch.offer;
  m.families.clear();
  m.items.clear();
  m.lease = op.lease;
  m.lease_ns = op.offer->lease_ns;
  for (const OfferBatch::Item& item : op.offer->items) {
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
  send(wire::encode(m, outlet_.body()));
  return true;
}

bool LinkRequests::issue_small(uint64_t id, Operation& op) {
  const uint64_t request = add_request(id, op, 0, 1);
  if (op.kind == Kind::status) {
    send(wire::encode(wire::Plain{wire::Type::ask_status, request, 0}, outlet_.body()));
  } else if (op.kind == Kind::renew) {
    op.renew.request = request;
    send(wire::encode(op.renew, outlet_.body()));
  } else {
    op.invalidate.request = request;
    send(wire::encode(op.invalidate, outlet_.body()));
  }
  return true;
}

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

// An answer whose request has ended is late, and nobody's fault; but a lease it brings must not stay.
Status LinkRequests::take_found(uint64_t request, ConstBytes body) {
  wire::Found& m = host_.scratch.found;
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  const Request* asked = requests_.get(request);
  Operation* op = asked == nullptr ? nullptr : operations_.get(asked->operation);
  if (op == nullptr) {
    if (m.lease != 0) send(wire::encode(wire::Release{{m.lease}}, outlet_.body()));
    return {};
  }
  if (op->kind != Kind::find || m.first != asked->first || m.items.size() != asked->count) {
    return {Code::damaged, "peer: an answer does not fit its question"};
  }
  std::copy(m.items.begin(), m.items.end(), op->find->found.begin() + m.first);
  for (const wire::FoundItem& item : m.items) stats_.found += item.present;
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
    // Its end comes with the end of the post, so that the staging is quiet by then.
    outlet_.port().cancel(item.token);
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
  wire::Granted granted;
  wire::Plain plain;
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
    if (plain.count != 0) code = Code::io_error;
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
      outlet_.port().cancel(op->items[i].token);
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

void LinkRequests::received(uint64_t token, Code code, uint64_t bytes) {
  const Transfer* found = transfers_.find(token);
  if (found == nullptr) return;
  const Transfer transfer = *found;
  transfers_.erase(token);
  stats_.posted_bytes -= transfer.bytes;
  Operation* op = transfer.operation == 0 ? nullptr : operations_.get(transfer.operation);
  if (op == nullptr) {
    stats_.quarantined_bytes -= transfer.bytes;
    if (transfer.owner != nullptr) quiet_.push_back({transfer.owner, transfer.cookie});
    return;
  }
  op->items[transfer.item].token = 0;
  arrived(*op, transfer.item, code, bytes);
  const Code ending = op->items[transfer.item].ending;
  const uint64_t request = request_of(*op, transfer.item);
  resolve(transfer.operation, *op, transfer.item, ending);
  if (request != 0) answered(request, 1);
}

// What came of a post: the item's end is decided here and said by resolve().
void LinkRequests::arrived(Operation& op, uint32_t index, Code code, uint64_t bytes) {
  Item& state = op.items[index];
  if (state.state == ItemState::ending) return;
  if (code != Code::ok) {
    state.ending = code == Code::mismatch ? Code::mismatch : Code::owner_gone;
    return;
  }
  FetchItem& item = op.fetch->items[index];
  const auto arrival = check_arrival(ConstBytes(item.staging).first(std::min<uint64_t>(bytes, item.staging.size())),
                                     host_.families.get(item.id.family), item.id.key, item.first_leaf, item.leaves);
  if (!arrival.ok()) {
    state.ending = arrival.status().code() == Code::mismatch ? Code::mismatch : Code::damaged;
    ++(state.ending == Code::mismatch ? stats_.wrong_records : stats_.damaged);
    return;
  }
  state.ending = Code::ok;
  item.head_bytes = static_cast<uint32_t>(arrival.value().head.head_bytes());
  item.payload_bytes = arrival.value().payload.size();
  ++stats_.fetched;
  stats_.fetched_bytes += bytes;
}

void LinkRequests::resolve(uint64_t id, Operation& op, uint32_t index, Code code) {
  op.items[index].state = ItemState::done;
  op.fetch->items[index].status = code;
  if (--op.unresolved == 0) finish(id);
}

uint64_t LinkRequests::request_of(const Operation& op, uint32_t item) {
  for (const uint64_t id : op.requests) {
    const Request* request = requests_.get(id);
    if (request != nullptr && item >= request->first && item < request->first + request->count) return id;
  }
  return 0;
}

// `items` of a request are over; with the last one the request is.
void LinkRequests::answered(uint64_t id, uint32_t items) {
  Request* request = requests_.get(id);
  if (request == nullptr) return;
  request->left -= items;
  if (request->left != 0) return;
  if (Operation* op = operations_.get(request->operation); op != nullptr) std::erase(op->requests, id);
  requests_.remove(id);
}

// Ends what is left of an operation: transfers are let go of, the peer is told to forget its fetches.
void LinkRequests::abandon(uint64_t id, Operation& op, Code code) {
  op.code = code;
  if (op.kind == Kind::find) {
    std::vector<bool> open(op.find->ids.size(), false);
    std::fill(open.begin() + op.next, open.end(), true);
    for (const uint64_t request : op.requests) {
      const Request& part = *requests_.get(request);
      std::fill_n(open.begin() + part.first, part.count, true);
    }
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i]) op.find->status[i] = code;
    }
  }
  for (size_t i = 0; i < op.items.size(); ++i) {
    Item& item = op.items[i];
    if (item.state == ItemState::done) continue;
    FetchItem& said = op.fetch->items[i];
    said.status = item.state == ItemState::ending ? item.ending : code;
    item.state = ItemState::done;
    if (item.token == 0) continue;
    said.quarantined = true;
    transfers_.find(item.token)->operation = 0;
    stats_.quarantined_bytes += said.staging.size();
    outlet_.port().cancel(item.token);
  }
  if (op.offer != nullptr) op.offer->status = code;
  op.unresolved = 0;
  if (op.kind == Kind::fetch && ended_ == Code::ok && limit_ != 0) {
    for (const uint64_t request : op.requests)
      send(wire::encode(wire::Plain{wire::Type::cancel, request, 0}, outlet_.body()));
  }
  finish(id);
}

void LinkRequests::finish(uint64_t id) {
  Operation* op = operations_.get(id);
  for (const uint64_t request : op->requests) requests_.remove(request);
  op->requests.clear();
  if (op->kind == Kind::offer && op->lease != 0 && op->offer->wanted.empty()) unwanted_.push_back(op->lease);
  finished_.push_back(std::move(*op));
  operations_.remove(id);
  stats_.unfinished = operations_.size();
}

void LinkRequests::finish_small(uint64_t id, Operation& op, Code code) {
  op.code = code;
  if (op.offer != nullptr) op.offer->status = code;
  finish(id);
}

void LinkRequests::expire(uint64_t now_ns) {
  uint64_t next = kNever;
  std::vector<uint64_t> late;
  operations_.each([&](uint64_t id, Operation& op) {
    if (op.deadline_ns <= now_ns) {
      late.push_back(id);
    } else {
      next = std::min(next, op.deadline_ns);
    }
  });
  next_deadline_ = next;
  for (const uint64_t id : late) {
    Operation* op = operations_.get(id);
    if (op == nullptr) continue;
    ++stats_.expired;
    abandon(id, *op, Code::deadline);
  }
}

void LinkRequests::end(Code code) {
  if (ended_ != Code::ok) return;
  ended_ = code;
  std::vector<uint64_t> all;
  operations_.each([&](uint64_t id, Operation&) { all.push_back(id); });
  for (const uint64_t id : all) abandon(id, *operations_.get(id), code);
  queue_.clear();
}

void LinkRequests::drain() {
  std::vector<Operation> finished;
  std::vector<Quiet> quiet;
  finished.swap(finished_);
  quiet.swap(quiet_);
  for (Operation& op : finished) {
    if (op.kind == Kind::find && op.find->done) op.find->done(*op.find);
    if (op.kind == Kind::fetch && op.fetch->done) op.fetch->done(*op.fetch);
    if (op.kind == Kind::offer && op.offer->done) op.offer->done(*op.offer);
    if (op.kind == Kind::status && op.status_done) op.status_done(op.code, op.status);
    if (op.kind == Kind::renew && op.lease_done) op.lease_done(op.code, op.code == Code::ok ? op.renew.lease_ns : 0);
    if (op.kind == Kind::invalidate && op.code_done) op.code_done(op.code);
  }
  // After the batches: an item is said to be in quarantine before it is said to be quiet.
  for (const Quiet& q : quiet) q.owner->staging_quiet(q.cookie);
}

}  // namespace kvbm::cluster
