// Reads records out of the store: neighbours in a pack are read together, and one read serves all that want it.
#include <algorithm>
#include <cstring>

#include "tier/check_record.h"
#include "tier/store/store_core.h"

namespace kvbm::tier::store {

namespace {

uint64_t location_of(const StorePlace& place) noexcept {
  return (static_cast<uint64_t>(place.pack) << 16 | place.entry) + 1;
}

}  // namespace

void StoreCore::find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept {
  std::fill(out.begin(), out.end(), Found{});
  if (!epochs_known_.load(std::memory_order_acquire) || requests_->backs_off()) return;
  constexpr size_t kPage = 64;
  bool leading = touch;  // a prompt's records behind the first one that is missing are of no use to its reader
  for (size_t first = 0; first < ids.size(); first += kPage) {
    const size_t n = std::min(kPage, ids.size() - first);
    RecordName names[kPage];
    for (size_t i = 0; i < n; ++i) {
      names[i] = record_name(families_.get(ids[first + i].family), ids[first + i].key);
    }
    finds_begun_.fetch_add(1, std::memory_order_relaxed);
    MutexLock lock(mutex_);
    finds_ended_.fetch_add(1, std::memory_order_relaxed);
    for (size_t i = 0; i < n; ++i) index_.prefetch(names[i]);
    const uint64_t found_ns = found_ != nullptr ? now() : 0;
    for (size_t i = 0; i < n; ++i) {
      const StorePlace place = index_.find(names[i]);
      leading = leading && place.found();
      if (leading && found_ != nullptr) found_->add(names[i], found_ns);
      if (!place.found()) continue;
      out[first + i].present = true;
      out[first + i].head_bytes = place.head_bytes;
      out[first + i].payload_bytes = place.payload_bytes;
      out[first + i].location = location_of(place);
    }
  }
}

void StoreCore::get(std::unique_ptr<GetBatch> batch) {
  const auto op = std::make_shared<GetOp>();
  const size_t n = batch->items.size();
  op->batch = std::move(batch);
  op->batch->status.assign(n, Code::internal);
  op->state.assign(n, GetOp::waiting);
  op->open = n;
  op->borrows = op->batch->accepts.borrows && op->batch->accepts.verifies;
  op->families.reserve(n);
  for (const GetItem& item : op->batch->items) op->families.push_back(families_.get(item.id.family));
  const uint64_t deadline_ns = op->batch->deadline_ns;
  const bool refused = closing_ || !epochs_known_ || requests_->backs_off();
  bool over = n == 0;
  std::vector<Want> ready;
  finds_begun_.fetch_add(1, std::memory_order_relaxed);
  {
    MutexLock lock(mutex_);
    finds_ended_.fetch_add(1, std::memory_order_relaxed);
    ++batches_;
    std::vector<Want> wants;
    for (size_t i = 0; i < n; ++i) {
      const GetItem& item = op->batch->items[i];
      const RecordName name = record_name(op->families[i], item.id.key);
      const StorePlace place = refused ? StorePlace{} : index_.find(name);
      if (found_ != nullptr) found_->remove(name);
      // Another record, with other sizes, may have replaced the one that was found.
      if (!place.found() || place.head_bytes > item.head.size() || place.payload_bytes > item.payload.size()) {
        over = decide(*op, i, refused && !closing_ ? Code::io_error : Code::miss) || over;
        continue;
      }
      wants.push_back({op, i, place, index_.stamp(place.pack)});
    }
    plan_flights(wants, std::min(deadline_ns, now() + 2 * options_.timeout_ns), ready);
    if (found_ != nullptr) found_->open();
  }
  if (over) return give_back(op);
  // Sets the batch's deadline timer. A read in flight may have ended the batch already, so it is used only through the
  // timer's weak reference from here on.
  if (deadline_ns != kNever) {
    executor_.post_at(deadline_ns, [self = shared_from_this(), weak = std::weak_ptr(op)] {
      if (const auto late = weak.lock()) self->expire_get(late);
    });
  }
  hand_out(std::move(ready));
  pump_gets();
  pump_ahead();
}

// Joins a read that covers the record, or takes what was read ahead.
bool StoreCore::join(const Want& want, uint64_t deadline_ns, std::vector<Want>& ready) {
  const auto at = flights_.find(want.stamp);
  if (at == flights_.end()) return false;
  for (const FlightRef& flight : at->second) {
    if (flight->begin > want.place.offset || want.place.offset + want.place.bytes() > flight->end) continue;
    if (flight->ahead) {
      asked(flight, want, ready);  // may end `flight`
      return true;
    }
    // Joins a read only if it has time for one whole try, because a read that fails at its deadline fails for every
    // item that waits for it.
    if (flight->deadline_ns < std::min(deadline_ns, now() + options_.timeout_ns)) continue;
    flight->wants.push_back(want);
    return true;
  }
  return false;
}

void StoreCore::plan_flights(std::vector<Want>& wants, uint64_t deadline_ns, std::vector<Want>& ready) {
  std::erase_if(wants, [&, deadline_ns](const Want& want) KVBM_NO_TSA { return join(want, deadline_ns, ready); });
  std::sort(wants.begin(), wants.end(), [](const Want& a, const Want& b) {
    return std::tie(a.stamp, a.place.offset) < std::tie(b.stamp, b.place.offset);
  });
  FlightRef flight;
  for (Want& want : wants) {
    const uint64_t begin = want.place.offset, end = begin + want.place.bytes();
    const bool with = flight != nullptr && flight->stamp == want.stamp && begin <= flight->end + kMaxGap &&
                      std::max(end, flight->end) - flight->begin <= kMaxRange;
    if (!with) {
      flight = std::make_shared<Flight>();
      flight->stamp = want.stamp;
      flight->begin = begin;
      flight->deadline_ns = deadline_ns;
      waiting_.push_back(flight);
      flights_[want.stamp].push_back(flight);
    }
    flight->end = std::max(flight->end, end);
    flight->wants.push_back(std::move(want));
  }
}

void StoreCore::pump_gets() {
  for (;;) {
    FlightRef flight;
    uint64_t bytes = 0;
    std::shared_ptr<ObjectRequest> dropped;  // released without the lock
    {
      MutexLock lock(mutex_);
      if (waiting_.empty()) return;
      bytes = buffer_bytes(waiting_.front()->end - waiting_.front()->begin);
      if (staged_ != 0 && staged_ + bytes > options_.staging_bytes) {
        dropped = drop_oldest_ahead();
        if (dropped == nullptr) return;
      } else {
        flight = std::move(waiting_.front());
        waiting_.pop_front();
        staged_ += bytes;
        ++loading_;
      }
    }
    if (flight == nullptr) continue;
    auto get = request(Verb::get, stamped_name(kPackPrefix, flight->stamp));
    get->data = take_buffer(bytes);
    get->bytes = flight->end - flight->begin;
    get->offset = flight->begin;
    requests_->submit(std::move(get), flight->deadline_ns, true,
                      [self = shared_from_this(), flight](Code code, std::unique_ptr<ObjectRequest> back) {
                        self->landed(flight, code, std::move(back));
                      });
  }
}

// Ends a read in flight. What was read ahead stays until it is asked for.
void StoreCore::landed(const FlightRef& flight, Code code, std::unique_ptr<ObjectRequest> back) {
  const uint64_t bytes = buffer_bytes(flight->end - flight->begin);
  std::shared_ptr<ObjectRequest> from = code == Code::ok ? hold(std::move(back), bytes) : nullptr;
  std::vector<Want> wants;
  std::vector<GetRef> over;
  std::vector<Want> ready;
  {
    MutexLock lock(mutex_);
    loading_ -= flight->ahead ? 0 : 1;
    wants.swap(flight->wants);
    if (from == nullptr || !keep_ahead(flight, from)) forget_flight(flight);
    if (from == nullptr) {
      staged_ -= bytes;
      failed(flight, code, wants, over, ready);
      wants.clear();
    }
  }
  for (const GetRef& op : over) give_back(op);
  for (Want& want : wants) {
    want.from = from;
    want.begin = flight->begin;
  }
  from = nullptr;
  hand_out(std::move(wants));
  hand_out(std::move(ready));
  pump_gets();
  pump_puts();
  pump_ahead();
  end_shutdown();
}

void StoreCore::failed(const FlightRef& flight, Code code, std::vector<Want>& wants, std::vector<GetRef>& over,
                       std::vector<Want>& ready) {
  // The object was evicted, expired or collected by another host.
  if (code == Code::miss) counts_.evicted += index_.drop(flight->stamp);
  std::erase_if(wants, [](const Want& want) { return want.op->state[want.item] != GetOp::waiting; });
  // A read ahead has less time than loads have, and is not tried again: they ask for themselves.
  if (flight->ahead && code != Code::miss && !closing_)
    return plan_flights(wants, now() + 2 * options_.timeout_ns, ready);
  for (const Want& want : wants) {
    if (decide(*want.op, want.item, code)) over.push_back(want.op);
  }
}

void StoreCore::forget_flight(const FlightRef& flight) {
  const auto at = flights_.find(flight->stamp);
  if (at == flights_.end()) return;
  if (std::erase(at->second, flight) != 0 && flight->ahead) ahead_bytes_ -= buffer_bytes(flight->end - flight->begin);
  if (at->second.empty()) flights_.erase(at);
}

// The memory is free when the last owner, and every borrower, has released it.
std::shared_ptr<ObjectRequest> StoreCore::hold(std::unique_ptr<ObjectRequest> request, uint64_t bytes) {
  return {request.release(), [self = shared_from_this(), bytes](ObjectRequest* gone) {
            {
              MutexLock lock(self->mutex_);
              self->staged_ -= bytes;
            }
            self->give_buffer(std::move(gone->data));
            delete gone;
            // Posts the rest, because it may start reads and writes, and the caller that releases the memory must not
            // run those.
            self->executor_.post([self] {
              self->pump_gets();
              self->pump_puts();
              self->pump_ahead();
              self->end_shutdown();
            });
          }};
}

// Each record that is copied gets a task, so that all threads copy; lending the others takes no time.
void StoreCore::hand_out(std::vector<Want> ready) {
  const auto copied = std::partition(ready.begin(), ready.end(), [](const Want& want) { return want.op->borrows; });
  for (auto at = copied; at != ready.end(); ++at) {
    executor_.post([self = shared_from_this(), want = std::move(*at)] { self->take({&want, 1}); });
  }
  if (copied != ready.begin()) take({ready.begin(), copied});
}

void StoreCore::take(std::span<const Want> ready) {
  std::vector<const Want*> taken;
  taken.reserve(ready.size());
  std::vector<Code> codes(ready.size());
  {
    MutexLock lock(mutex_);
    for (const Want& want : ready) {
      if (want.op->state[want.item] != GetOp::waiting) continue;
      want.op->state[want.item] = GetOp::copying;
      taken.push_back(&want);
    }
  }
  for (size_t i = 0; i < taken.size(); ++i) codes[i] = copy_out(*taken[i]);
  std::vector<GetRef> over;
  std::vector<Identity> erased;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < taken.size(); ++i) {
      const Want& want = *taken[i];
      if (codes[i] == Code::damaged) {
        const Identity& id = want.op->batch->items[want.item].id;
        const RecordName name = record_name(want.op->families[want.item], id.key);
        const StorePlace place = index_.find(name);
        const bool same = place.found() && index_.stamp(place.pack) == want.stamp;
        if (same && index_.erase(name)) erased.push_back(id);
        ++counts_.damaged;
      }
      if (decide(*want.op, want.item, codes[i])) over.push_back(want.op);
    }
  }
  if (!erased.empty() && listener_ != nullptr) listener_->removed(index_number_, erased, true);
  for (const GetRef& op : over) give_back(op);
}

Code StoreCore::copy_out(const Want& want) {
  GetBatch& batch = *want.op->batch;
  GetItem& item = batch.items[want.item];
  const StorePlace& place = want.place;
  const uint64_t at = place.offset - want.begin;
  if (at + place.bytes() > want.from->done) return Code::damaged;
  const ConstBytes bytes = ConstBytes(want.from->data.span()).subspan(at, place.bytes());
  // Copied before it is checked: the store's own code may still write to the memory that it read into.
  std::memcpy(item.head.data(), bytes.data(), place.head_bytes);
  codec::HeadView head;
  if (check_head(want.op->families[want.item], item.id.key, ConstBytes(item.head).first(place.head_bytes),
                 place.payload_bytes, &head) != Code::ok) {
    return Code::damaged;
  }
  const ConstBytes payload = bytes.subspan(place.head_bytes);
  if (want.op->borrows) {
    item.lent = payload;
    item.lender = want.from;
  } else {
    if (!payload.empty()) std::memcpy(item.payload.data(), payload.data(), payload.size());
    if (!batch.accepts.verifies &&
        check_leaves(head, ConstBytes(item.payload).first(place.payload_bytes)) != Code::ok) {
      return Code::damaged;
    }
  }
  item.head_bytes = place.head_bytes;
  item.payload_bytes = place.payload_bytes;
  item.location = location_of(place);
  return Code::ok;
}

bool StoreCore::decide(GetOp& op, size_t item, Code code) {
  op.state[item] = GetOp::decided;
  op.batch->status[item] = code;
  ++(code == Code::ok ? counts_.gets : code == Code::miss ? counts_.misses : counts_.get_errors);
  if (code == Code::ok) counts_.get_bytes += op.batch->items[item].payload_bytes;
  return --op.open == 0;
}

// Copies in progress are finished first: they take no time.
void StoreCore::expire_get(const GetRef& op) {
  bool over = false;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < op->state.size(); ++i) {
      if (op->state[i] == GetOp::waiting) over = decide(*op, i, Code::deadline) || over;
    }
  }
  if (over) give_back(op);
}

// A receiver found the record damaged. A record that replaced it meanwhile stays.
void StoreCore::reject(const Identity& id, uint64_t location) {
  const RecordName name = record_name(families_.get(id.family), id.key);
  bool erased = false;
  {
    MutexLock lock(mutex_);
    const StorePlace place = index_.find(name);
    erased = place.found() && (location == 0 || location_of(place) == location) && index_.erase(name);
    ++counts_.damaged;
  }
  if (erased && listener_ != nullptr) listener_->removed(index_number_, {&id, 1}, true);
}

}  // namespace kvbm::tier::store
