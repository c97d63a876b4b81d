#include "cluster/link/link_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cluster/link/peer_link.h"

namespace kvbm::cluster {

LinkService::~LinkService() {
  host_.open.give_back(0, stats_.open_records);
  host_.leased.give_back(0, stats_.leased_records);
}

Status LinkService::take(const wire::Head& head, ConstBytes body) {
  wire::Head plain;
  switch (head.type) {
    case wire::Type::find:
      return take_find(body);
    case wire::Type::fetch:
      return take_fetch(body);
    case wire::Type::cancel:
      return take_cancel(body);
    case wire::Type::release:
      return take_release(body);
    case wire::Type::renew:
      return take_renew(body);
    case wire::Type::invalidate:
      return take_invalidate(body);
    default:
      break;
  }
  if (Status status = wire::decode(body, plain); !status.ok()) return status;  // ask_status
  wire::NodeStatus status = host_.source.status();
  status.request = plain.request;
  link_.commit(wire::encode(status, link_.body()));
  return {};
}

// Returns false for a family unknown to this node, which has no records here.
bool LinkService::identity_of(const wire::Name& name, const std::vector<Family>& families, Identity& out) const {
  out.key = name.key;
  return host_.families.find(families[name.family], out.family);
}

Status LinkService::take_find(ConstBytes body) {
  wire::Find& m = host_.scratch.find;
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  wire::Found& answer = host_.scratch.found;
  answer = {m.request, m.first, 0, 0, std::move(answer.items)};
  answer.items.assign(m.items.size(), {});
  std::vector<Identity>& ids = host_.scratch.ids;
  std::vector<uint32_t> places;
  ids.clear();
  places.reserve(m.items.size());
  for (size_t i = 0; i < m.items.size(); ++i) {
    Identity id;
    if (!identity_of(m.items[i], m.families, id)) continue;
    ids.push_back(id);
    places.push_back(static_cast<uint32_t>(i));
  }
  std::vector<wire::FoundItem> found(ids.size());
  host_.source.find(ids, found);
  std::vector<Identity> held;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (found[i].present == 0) continue;
    // Records beyond the leases' share are reported as present, but not held.
    if (m.lease_ns != 0 && held.size() < lease_room()) {
      if (!host_.source.pin(ids[i])) continue;
      held.push_back(ids[i]);
    } else if (m.lease_ns != 0) {
      ++stats_.leases_short;
    }
    answer.items[places[i]] = found[i];
  }
  if (!held.empty()) {
    answer.lease_ns = std::min(m.lease_ns, host_.limits.lease_ns);
    answer.lease = add_lease(std::move(held), answer.lease_ns);
    if (answer.lease == 0) answer.lease_ns = 0;
  }
  link_.commit(wire::encode(answer, link_.body()));
  return {};
}

Status LinkService::take_fetch(ConstBytes body) {
  wire::Fetch& m = host_.scratch.fetch;
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  // Twice the limit: the peer may have all bytes of a request, and so count it as ended, before its pushes end here.
  if (serving_.size() >= 2 * static_cast<size_t>(host_.limits.requests)) {
    link_.commit(wire::encode(wire::Failed{m.request, static_cast<int32_t>(Code::again), 0}, link_.body()));
    return {};
  }
  Serving serving;
  serving.request = m.request;
  serving.coding = m.coding;
  const uint64_t now = host_.executor.clock().now_ns();
  serving.deadline_ns = m.budget_ns > kNever - now ? kNever : now + m.budget_ns;
  serving.items.resize(m.items.size());
  for (size_t i = 0; i < m.items.size(); ++i) {
    const wire::FetchItem& from = m.items[i];
    ServedItem& to = serving.items[i];
    to.known = identity_of(from.name, m.families, to.id);
    to.first_leaf = from.first_leaf;
    to.leaves = from.leaves;
    to.location = from.location;
    to.tag = from.tag;
    to.room = from.room;
  }
  if (!serving.items.empty()) queue_.push_back(serving_.add(std::move(serving)));
  return {};
}

void LinkService::pump() {
  while (!queue_.empty() && stats_.open_records < host_.limits.serving_items && !ended_ && may_open()) {
    const uint64_t id = queue_.front();
    Serving* serving = serving_.get(id);
    if (serving == nullptr || serving->cancelled || serving->next == serving->items.size()) {
      queue_.pop_front();
      if (serving != nullptr) close_item(id);
      continue;
    }
    start(id, serving->next++);
  }
  serving_.each([this](uint64_t, Serving& serving) { flush(serving); });
}

// A link without an open record may always open one, whatever the others hold: it must not wait for them.
bool LinkService::may_open() const noexcept {
  return stats_.open_records == 0 || host_.open.room(host_.source.room().open, stats_.open_records) != 0;
}

void LinkService::opened_one() noexcept {
  host_.open.take(stats_.open_records, 1);
  ++stats_.open_records;
}

void LinkService::closed_one() noexcept {
  --stats_.open_records;
  host_.open.give_back(stats_.open_records, 1);
}

void LinkService::start(uint64_t id, uint32_t index) {
  Serving& serving = *serving_.get(id);
  const ServedItem item = serving.items[index];
  if (serving.deadline_ns <= host_.executor.clock().now_ns()) {
    fail(serving, index, Code::deadline);
    return;
  }
  if (!item.known) {
    fail(serving, index, Code::miss);
    return;
  }
  ++serving.open;
  opened_one();
  auto opened = [handle = link_.weak_from_this(), source = &host_.source, id, index](const OpenedRecord& record) {
    if (const auto link = handle.lock()) {
      link->record_opened(id, index, record);
    } else if (record.code == Code::ok) {
      source->close(record.pin);
    }
  };
  host_.source.open_coded(item.id, item.location, item.first_leaf, item.leaves, serving.coding, serving.deadline_ns,
                          std::move(opened));
}

void LinkService::record_opened(uint64_t id, uint32_t index, const OpenedRecord& record) {
  Serving* serving = serving_.get(id);
  const bool gone = serving == nullptr || serving->cancelled;
  Code code = record.code;
  if (code == Code::ok) {
    const uint64_t bytes = record.head.size() + record.payload.size();
    if (gone) {
      code = Code::cancelled;
    } else if (bytes > serving->items[index].room) {
      code = Code::no_room;
    } else if (serving->deadline_ns <= host_.executor.clock().now_ns()) {
      code = Code::deadline;
    } else {
      const ConstBytes pieces[2] = {record.head, record.payload};
      uint64_t token = 0;
      code = link_.port().push(serving->items[index].tag, std::span(pieces, record.payload.empty() ? 1 : 2), token);
      if (code == Code::ok) {
        serving->items[index].token = token;
        pushes_.insert(token, {id, index, record.pin});
        stats_.served_bytes += bytes;
        return;
      }
      code = Code::io_error;
    }
    host_.source.close(record.pin);
  }
  closed_one();
  if (serving == nullptr) return;
  --serving->open;
  if (!gone) fail(*serving, index, code, static_cast<uint32_t>(record.head.size()), record.payload.size());
  close_item(id);
}

void LinkService::pushed(uint64_t token, Code code) {
  const Push* found = pushes_.find(token);
  if (found == nullptr) return;
  const Push push = *found;
  pushes_.erase(token);
  host_.source.close(push.pin);
  closed_one();
  Serving* serving = serving_.get(push.serving);
  if (serving == nullptr) return;
  --serving->open;
  serving->items[push.index].token = 0;
  if (code != Code::ok && !serving->cancelled) fail(*serving, push.index, Code::io_error);
  close_item(push.serving);
}

void LinkService::fail(Serving& serving, uint32_t index, Code code, uint32_t head_bytes, uint64_t payload_bytes) {
  serving.failed.push_back({index, static_cast<int32_t>(code), head_bytes, payload_bytes});
}

void LinkService::flush(Serving& serving) {
  if (serving.failed.empty()) return;
  wire::Fetched& m = host_.scratch.fetched;
  m.request = serving.request;
  m.items.swap(serving.failed);
  serving.failed.clear();
  if (!ended_ && !serving.cancelled) link_.commit(wire::encode(m, link_.body()));
}

// Ends a serving when its last item has ended.
void LinkService::close_item(uint64_t id) {
  Serving* serving = serving_.get(id);
  if (serving == nullptr || serving->open != 0 || (!serving->cancelled && serving->next != serving->items.size()))
    return;
  flush(*serving);
  serving_.remove(id);
}

Status LinkService::take_cancel(ConstBytes body) {
  wire::Head m;
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  uint64_t id = 0;
  serving_.each([&](uint64_t at, Serving& serving) {
    if (serving.request == m.request) id = at;
  });
  Serving* serving = serving_.get(id);
  if (serving == nullptr) return {};
  serving->cancelled = true;
  for (const ServedItem& item : serving->items) {
    if (item.token != 0) link_.port().cancel(item.token);
  }
  close_item(id);
  return {};
}

uint64_t LinkService::add_lease(std::vector<Identity> ids, uint64_t lease_ns) {
  if (leases_.size() >= host_.limits.leases || ended_) {
    for (const Identity& id : ids) host_.source.unpin(id);
    return 0;
  }
  const uint64_t now = host_.executor.clock().now_ns();
  const uint64_t until = lease_ns > kNever - now ? kNever : now + lease_ns;
  const uint64_t longest = host_.limits.lease_ns * host_.limits.lease_renewals;
  host_.leased.take(stats_.leased_records, ids.size());
  stats_.leased_records += ids.size();
  next_deadline_ = std::min(next_deadline_, until);
  leases_[next_lease_] = {until, std::max(until, now + longest), std::move(ids)};
  return next_lease_++;
}

uint64_t LinkService::grant(std::span<const Identity> ids, uint64_t lease_ns) {
  if (ids.size() > lease_room()) {
    stats_.leases_short += ids.size();
    return 0;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (host_.source.pin(ids[i])) continue;
    for (size_t j = 0; j < i; ++j) host_.source.unpin(ids[j]);
    return 0;
  }
  return add_lease({ids.begin(), ids.end()}, lease_ns);
}

void LinkService::drop(std::map<uint64_t, Lease>::iterator lease) {
  for (const Identity& id : lease->second.ids) host_.source.unpin(id);
  stats_.leased_records -= lease->second.ids.size();
  host_.leased.give_back(stats_.leased_records, lease->second.ids.size());
  leases_.erase(lease);
}

void LinkService::release(uint64_t lease) {
  if (const auto found = leases_.find(lease); found != leases_.end()) drop(found);
}

Status LinkService::take_release(ConstBytes body) {
  wire::Release& m = host_.scratch.release;
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  for (const uint64_t lease : m.leases) release(lease);
  return {};
}

Status LinkService::take_renew(ConstBytes body) {
  wire::Lease m;
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  const auto found = leases_.find(m.lease);
  uint64_t granted = 0;
  if (found != leases_.end()) {
    const uint64_t now = host_.executor.clock().now_ns();
    granted =
        std::min({m.lease_ns, host_.limits.lease_ns, found->second.last_ns - std::min(now, found->second.last_ns)});
    found->second.until_ns = now + granted;
    next_deadline_ = std::min(next_deadline_, found->second.until_ns);
  }
  link_.commit(wire::encode(wire::Lease{wire::Type::granted, m.request, m.lease, granted}, link_.body()));
  return {};
}

Status LinkService::take_invalidate(ConstBytes body) {
  wire::Invalidate m;
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  if (epoch_requests_waiting_ >= host_.limits.epochs_waiting) {
    ++stats_.epochs_put_off;
    answer_invalidate(m.request, Code::again);
    return {};
  }
  ++epoch_requests_waiting_;
  const auto same = std::find_if(epochs_waiting_.begin(), epochs_waiting_.end(),
                                 [&](const EpochAsked& asked) { return asked.word.base == m.base; });
  if (same == epochs_waiting_.end()) {
    epochs_waiting_.push_back({{m.base, m.epoch}, {m.request}});
  } else {
    same->word.epoch = std::max(same->word.epoch, m.epoch);
    same->requests.push_back(m.request);
  }
  start_epochs();
  return {};
}

// Passes on the invalidations that arrived while a batch was being written, as the next batch.
void LinkService::start_epochs() {
  if (!epochs_at_work_.empty() || epochs_waiting_.empty() || ended_) return;
  epochs_at_work_.swap(epochs_waiting_);
  epoch_requests_waiting_ = 0;
  std::vector<EpochWord> words;
  for (const EpochAsked& asked : epochs_at_work_) words.push_back(asked.word);
  host_.source.invalidate(std::move(words), host_.limits.new_epochs - new_epochs_,
                          [handle = link_.weak_from_this()](const std::vector<EpochWord>& taken) {
                            if (const auto link = handle.lock()) link->epochs_taken(taken);
                          });
}

void LinkService::epochs_taken(const std::vector<EpochWord>& words, std::vector<EpochWord>& tell_back) {
  if (ended_) return;
  const std::vector<EpochAsked> asked = std::exchange(epochs_at_work_, {});
  for (size_t i = 0; i < asked.size(); ++i) {
    const EpochWord& word = words[i];
    new_epochs_ += word.added ? 1 : 0;
    const bool implausible = word.code == Code::invalid_argument;
    if (implausible || word.code == Code::at_limit) ++stats_.epochs_refused;
    if (implausible) {
      ++stats_.violations;
      if (!std::exchange(told_of_epochs_, true) && host_.log != nullptr) {
        host_.log->write(LogLevel::warning, host_.log_as,
                         "node " + short_text(link_.peer().node) + " says that a namespace has epoch " +
                             std::to_string(word.epoch) + ", here it is " + std::to_string(word.known) +
                             ": refused, nothing was invalidated");
      }
    }
    if (word.code == Code::ok && word.known > word.epoch) tell_back.push_back(word);
    for (const uint64_t request : asked[i].requests) answer_invalidate(request, word.code);
  }
  start_epochs();
}

void LinkService::answer_invalidate(uint64_t request, Code code) {
  const auto failed = static_cast<uint32_t>(code == Code::ok ? 0 : -static_cast<int32_t>(code));
  link_.commit(wire::encode(wire::Head{wire::Type::invalidated, request, failed}, link_.body()));
}

Status LinkService::take_offer(ConstBytes body, std::vector<Offered>& out, wire::Offer& m) {
  if (Status status = wire::decode(body, m); !status.ok()) return status;
  std::vector<std::pair<bool, FamilyId>> known(m.families.size(), {false, kNoFamily});
  for (size_t i = 0; i < m.families.size(); ++i) {
    known[i].first = host_.families.find(m.families[i], known[i].second);
    if (known[i].first) continue;
    const auto id = host_.limits.own_families
                        ? host_.families.intern(m.families[i])
                        : host_.families.intern_foreign(m.families[i], new_families_, host_.limits.new_families);
    if (!id.ok()) continue;
    known[i] = {true, id.value()};
  }
  out.clear();
  for (const wire::OfferItem& item : m.items) {
    // Every item stays at its index, because the peer names wanted items by index. An unknown family is no record (no
    // bytes).
    const auto& [here, family] = known[item.name.family];
    Offered offered{{item.name.key, family}, item.uses, item.priority, 0, 0, item.location};
    if (here) offered.head_bytes = item.head_bytes, offered.payload_bytes = item.payload_bytes;
    out.push_back(offered);
  }
  return {};
}

void LinkService::expire(uint64_t now_ns) {
  uint64_t next = kNever;
  for (auto at = leases_.begin(); at != leases_.end();) {
    const auto lease = at++;
    if (lease->second.until_ns <= now_ns) {
      ++stats_.leases_expired;
      drop(lease);
    } else {
      next = std::min(next, lease->second.until_ns);
    }
  }
  next_deadline_ = next;
}

void LinkService::end() {
  if (ended_) return;
  ended_ = true;
  while (!leases_.empty()) drop(leases_.begin());
  std::vector<uint64_t> all;
  serving_.each([&](uint64_t id, Serving&) { all.push_back(id); });
  for (const uint64_t id : all) serving_.remove(id);
  queue_.clear();
}

}  // namespace kvbm::cluster
