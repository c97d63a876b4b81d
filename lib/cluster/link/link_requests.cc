#include "cluster/link/link_requests.h"

#include <algorithm>
#include <new>

#include "cluster/link/peer_link.h"
#include "codec/coded/coded_record.h"

namespace kvbm::cluster {

uint32_t place_family(std::vector<Family>& families, const Family& family) {
  // Searched from the end: most messages have one family, and the last one used is the likeliest.
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
  (operation.kind == Kind::fetch ? fetches_ : queue_).push_back(id);
}

uint64_t LinkRequests::find(std::unique_ptr<FindBatch> batch) {
  Operation op;
  op.kind = Kind::find;
  op.deadline_ns = batch->deadline_ns;
  op.unresolved = static_cast<uint32_t>(batch->ids.size());
  batch->found.assign(batch->ids.size(), {});
  batch->status.assign(batch->ids.size(), Code::ok);
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
  abandon(operation, *op, Code::cancelled);
  return true;
}

void LinkRequests::begin(uint32_t peer_limit) { limit_ = std::max(1U, std::min(host_.limits.requests, peer_limit)); }

void LinkRequests::send(size_t bytes) { link_.commit(bytes); }

// Sends one message for the first operation of the queue.
LinkRequests::Pumped LinkRequests::pump_first(std::deque<uint64_t>& queue) {
  const uint64_t id = queue.front();
  if (operations_.get(id) != nullptr && !issue(id)) return Pumped::waits_for_staging;
  Operation* const op = operations_.get(id);
  const bool more = op != nullptr && ((op->kind == Kind::find && op->next < op->find->ids.size()) ||
                                      (op->kind == Kind::fetch && op->next < op->items.size()));
  if (more) return Pumped::asked;
  if (op != nullptr) op->queued = false;
  queue.pop_front();
  return Pumped::asked;
}

// Serves both queues in turn, while both may send.
void LinkRequests::pump() {
  bool starved = false;
  while (ended_ == Code::ok && limit_ != 0 && link_.clear() && requests_.size() < limit_) {
    const bool may_fetch = !fetches_.empty() && !starved && (limit_ == 1 || requests_.size() + 1 < limit_);
    if (queue_.empty() && !may_fetch) return;
    if (may_fetch && (queue_.empty() || fetch_next_)) {
      starved = pump_first(fetches_) == Pumped::waits_for_staging;
      fetch_next_ = false;
    } else {
      (void)pump_first(queue_);
      fetch_next_ = true;
    }
  }
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
    if (transfer.owner != nullptr) quiet_.push_back(transfer);
    return;
  }
  op->items[transfer.item].token = 0;
  arrived(*op, transfer.item, code, bytes);
  const Code ending = op->items[transfer.item].ending;
  const uint64_t request = request_of(*op, transfer.item);
  resolve(transfer.operation, *op, transfer.item, ending);
  if (request != 0) answered(request, 1);
}

// Notes the end of a post: the item's result is decided here and reported by resolve().
void LinkRequests::arrived(Operation& op, uint32_t index, Code code, uint64_t bytes) {
  Item& state = op.items[index];
  if (state.state == ItemState::ending) return;
  if (code != Code::ok) {
    // damaged: the connection has ended because the received bytes were not what the peer sent.
    state.ending = code == Code::mismatch || code == Code::damaged ? code : Code::owner_gone;
    return;
  }
  FetchItem& item = op.fetch->items[index];
  const ConstBytes came = ConstBytes(item.staging).first(std::min<uint64_t>(bytes, item.staging.size()));
  const auto head = check_arrival(came, host_.families.get(item.id.family), item.id.key, item.first_leaf, item.leaves);
  if (!head.ok()) {
    state.ending = head.status().code() == Code::mismatch ? Code::mismatch : Code::damaged;
    ++(state.ending == Code::mismatch ? stats_.wrong_records : stats_.damaged);
    return;
  }
  state.ending = Code::ok;
  item.head_bytes = static_cast<uint32_t>(head.value().head_bytes());
  item.payload_bytes = came.size() - item.head_bytes;
  item.raw_bytes = head.value().header().raw_bytes;
  item.coded = codec::is_coded(head.value());
  item.sealed = (head.value().header().flags & codec::kSealed) != 0;
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

// Counts `items` of a request as ended; with the last one the request ends.
void LinkRequests::answered(uint64_t id, uint32_t items) {
  Request* request = requests_.get(id);
  if (request == nullptr) return;
  request->left -= items;
  if (request->left != 0) return;
  if (Operation* op = operations_.get(request->operation); op != nullptr) std::erase(op->requests, id);
  requests_.remove(id);
}

// Ends the rest of an operation: abandons its transfers, and makes the peer cancel its fetches.
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
    link_.port().cancel(item.token);
  }
  if (op.offer != nullptr) op.offer->status = code;
  op.unresolved = 0;
  if (op.kind == Kind::fetch && ended_ == Code::ok && limit_ != 0) {
    for (const uint64_t request : op.requests)
      send(wire::encode(wire::Head{wire::Type::cancel, request}, link_.body()));
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
  fetches_.clear();
}

void LinkRequests::tell(Operation& op) {
  if (op.kind == Kind::find && op.find->done) op.find->done(*op.find);
  if (op.kind == Kind::fetch && op.fetch->done) op.fetch->done(*op.fetch);
  if (op.kind == Kind::offer && op.offer->done) op.offer->done(*op.offer);
  if (op.kind == Kind::status && op.status_done) op.status_done(op.code, op.status);
  if (op.kind == Kind::renew && op.lease_done) op.lease_done(op.code, op.code == Code::ok ? op.renew.lease_ns : 0);
  if (op.kind == Kind::invalidate && op.code_done) op.code_done(op.code);
}

void LinkRequests::drain() {
  std::vector<Operation> finished;
  std::vector<Transfer> quiet;
  finished.swap(finished_);
  quiet.swap(quiet_);
  size_t reported = 0;
  try {
    while (reported < finished.size()) tell(finished[reported++]);
  } catch (const std::bad_alloc&) {
    // The other operations are reported next time; those that ended meanwhile follow them.
    finished.erase(finished.begin(), finished.begin() + static_cast<std::ptrdiff_t>(reported));
    finished.swap(finished_);
    quiet.swap(quiet_);
    for (Operation& late : finished) finished_.push_back(std::move(late));
    for (const Transfer& late : quiet) quiet_.push_back(late);
    throw;
  }
  // After the batches: an item must be reported as quarantined before it is reported as quiet.
  for (const Transfer& q : quiet) q.owner->staging_quiet(q.cookie);
}

}  // namespace kvbm::cluster
