// Reads ahead: what lookups found in the store and loads have not asked for yet. Engines look a whole prompt up and
// load it in parts; from the first load on, the following parts are read while the engine takes the first. A process
// that looks up and never loads reads nothing.
//
// Reads ahead go last: they begin only while no load reads or waits, with half of the requests that the store takes at
// a time. They have memory of their own within staging_bytes, and nothing is evicted for them; a load that needs that
// memory gets it. Each is tried for one timeout, and what it read is dropped when no load has asked for it in kKeptNs.
#include <algorithm>

#include "tier/store/store_core.h"

namespace kvbm::tier::store {

namespace {

constexpr uint64_t kKeptNs = 10'000'000'000;

}  // namespace

// A match that had the record is released. A load may have taken less than it could: the rest is computed.
void StoreCore::unwanted(const Identity& id) noexcept {
  if (!takes_ahead_.load(std::memory_order_relaxed)) return;
  const RecordName name = record_name(families_.get(id.family), id.key);
  MutexLock lock(mutex_);
  found_->remove_open(name);
  takes_ahead_.store(found_->first(now()) != nullptr, std::memory_order_relaxed);
}

bool StoreCore::may_read_ahead() const {
  return found_ != nullptr && !closing_ && loading_ == 0 && waiting_.empty() && puts_.empty() &&
         ahead_bytes_ < options_.ahead_bytes && staged_ <= options_.staging_bytes / 2 && !requests_->backs_off() &&
         requests_->has_spare();
}

// Returns true if a read in flight, or one that was made ahead, has the record.
bool StoreCore::is_read(const Stamp& stamp, const StorePlace& place) const {
  const auto at = flights_.find(stamp);
  if (at == flights_.end()) return false;
  return std::any_of(at->second.begin(), at->second.end(), [&place](const FlightRef& flight) {
    return flight->begin <= place.offset && place.offset + place.bytes() <= flight->end;
  });
}

// Takes the next names, as far as their records are neighbours. Null: there is nothing to read.
StoreCore::FlightRef StoreCore::next_ahead() {
  FlightRef flight;
  const uint64_t at_ns = now(), left = options_.ahead_bytes - ahead_bytes_;
  while (const RecordName* const name = found_->first(at_ns)) {
    const StorePlace place = index_.find(*name);
    const Stamp* const stamp = place.found() ? &index_.stamp(place.pack) : nullptr;
    if (stamp == nullptr || buffer_bytes(place.bytes()) > options_.ahead_bytes || is_read(*stamp, place)) {
      found_->remove(*name);
      continue;
    }
    const uint64_t end = place.offset + place.bytes();
    if (flight == nullptr) {
      if (buffer_bytes(place.bytes()) > left) break;
      flight = std::make_shared<Flight>();
      flight->ahead = true;
      flight->stamp = *stamp;
      flight->begin = flight->end = place.offset;
      flight->deadline_ns = at_ns + options_.timeout_ns;
    } else if (*stamp != flight->stamp || place.offset < flight->end || place.offset > flight->end + kMaxGap ||
               end - flight->begin > kMaxRange || buffer_bytes(end - flight->begin) > left) {
      break;
    }
    flight->end = end;
    flight->unasked.push_back(place);
    found_->remove(*name);
  }
  return flight;
}

void StoreCore::pump_ahead() {
  for (;;) {
    FlightRef flight;
    uint64_t bytes = 0;
    {
      MutexLock lock(mutex_);
      if (may_read_ahead()) flight = next_ahead();
      if (found_ != nullptr) takes_ahead_.store(found_->first(now()) != nullptr, std::memory_order_relaxed);
      if (flight == nullptr) return;
      bytes = buffer_bytes(flight->end - flight->begin);
      staged_ += bytes;
      ahead_bytes_ += bytes;
      flights_[flight->stamp].push_back(flight);
    }
    auto get = request(Verb::get, stamped_name(kPackPrefix, flight->stamp));
    get->data = take_buffer(bytes);
    get->bytes = flight->end - flight->begin;
    get->offset = flight->begin;
    // Sends the request as urgent, so at once: a load that joins this read must not wait behind writes of packs.
    requests_->submit(std::move(get), flight->deadline_ns, true,
                      [self = shared_from_this(), flight](Code code, std::unique_ptr<ObjectRequest> back) {
                        self->landed(flight, code, std::move(back));
                      });
  }
}

// A load asks for a record that is read ahead: it gets it now, or when it has been read.
void StoreCore::asked(const FlightRef& flight, const Want& want, std::vector<Want>& ready) {
  const FlightRef held = flight;  // its place in flights_ may go
  const auto unasked = std::find_if(held->unasked.begin(), held->unasked.end(),
                                    [&want](const StorePlace& place) { return place.offset == want.place.offset; });
  if (unasked != held->unasked.end()) {
    held->unasked.erase(unasked);
    (held->from == nullptr ? held->asked_bytes : counts_.store.ahead_used_bytes) += want.place.bytes();
  }
  if (held->from == nullptr) return held->wants.push_back(want);
  ready.push_back(want);
  ready.back().from = held->from;
  ready.back().begin = held->begin;
  if (held->unasked.empty()) (void)drop_ahead(held);  // `ready` has its memory
}

// Keeps what was read ahead, if it has records that no load has asked for.
bool StoreCore::keep_ahead(const FlightRef& flight, const std::shared_ptr<ObjectRequest>& from) {
  if (!flight->ahead) return false;
  uint64_t unasked = 0;
  for (const StorePlace& place : flight->unasked) unasked += place.bytes();
  counts_.store.ahead_bytes += flight->asked_bytes + unasked;
  counts_.store.ahead_used_bytes += flight->asked_bytes;
  if (closing_) counts_.store.ahead_unused_bytes += unasked;
  if (closing_ || unasked == 0) return false;
  flight->from = from;
  ahead_.push_back(flight);
  executor_.post_at(now() + kKeptNs, [weak_self = weak_from_this(), weak = std::weak_ptr(flight)] {
    const auto self = weak_self.lock();
    const auto old = weak.lock();
    if (self == nullptr || old == nullptr) return;
    std::shared_ptr<ObjectRequest> dropped;  // released without the lock
    MutexLock lock(self->mutex_);
    dropped = self->drop_ahead(old);
  });
  return true;
}

// Returns what the flight had read; null if it was dropped before. The caller releases it without the lock.
std::shared_ptr<ObjectRequest> StoreCore::drop_ahead(const FlightRef& flight) {
  if (flight->from == nullptr) return nullptr;
  for (const StorePlace& place : flight->unasked) counts_.store.ahead_unused_bytes += place.bytes();
  flight->unasked.clear();
  std::erase(ahead_, flight);
  forget_flight(flight);
  return std::move(flight->from);
}

std::shared_ptr<ObjectRequest> StoreCore::drop_oldest_ahead() {
  return ahead_.empty() ? nullptr : drop_ahead(FlightRef(ahead_.front()));
}

// The tier is closed: what was read is dropped, and what is in flight is no longer waited for.
void StoreCore::end_ahead() {
  for (;;) {
    std::shared_ptr<ObjectRequest> dropped;  // released without the lock
    MutexLock lock(mutex_);
    dropped = drop_oldest_ahead();
    if (dropped != nullptr) continue;
    for (auto at = flights_.begin(); at != flights_.end();) {
      std::erase_if(at->second, [](const FlightRef& flight) { return flight->ahead && flight->wants.empty(); });
      at = at->second.empty() ? flights_.erase(at) : std::next(at);
    }
    return;
  }
}

}  // namespace kvbm::tier::store
