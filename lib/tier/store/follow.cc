// Follows other processes: their index objects, and those of earlier ones, are read as they appear and applied in
// order.
#include <algorithm>

#include "tier/store/store_core.h"

namespace kvbm::tier::store {

namespace {

constexpr size_t kListBytes = 256 << 10;
// Most names that one listing gives: more were not written by a library like this one.
constexpr uint64_t kMaxListed = 4'000'000;
// Index objects that are read at a time. Of those of more than kListBytes, one: its memory is kMaxIndexBytes.
constexpr size_t kReadAtOnce = 8;
// Index objects that wait until older ones are read. With more, only the oldest is read, for which they wait.
constexpr size_t kMaxArrived = 32;
constexpr uint64_t kMaxArrivedBytes = kMaxIndexBytes;
// All names are listed again after this time, to find objects that a wrong clock or a late put has hidden.
constexpr uint64_t kWholeNs = 600'000'000'000;
// Time between two listings of all epochs.
constexpr uint64_t kEpochsNs = 10'000'000'000;
// Share of the capacity that the packs of one index object of another process take at most: with more, packs that are
// named and not there could displace all others.
constexpr uint64_t kCountedShare = 4;
// Largest age of a pack relative to the index object that names it.
constexpr uint64_t kUntoldMs = 120'000;

}  // namespace

std::unique_ptr<ObjectRequest> StoreCore::request(Verb verb, std::string name) const {
  auto out = std::make_unique<ObjectRequest>();
  out->verb = verb;
  out->name = std::move(name);
  return out;
}

// Lists page after page; `take` gets every name, `done` the end.
void StoreCore::list(std::shared_ptr<Listing> listing) {
  auto ask = request(Verb::list, listing->prefix);
  ask->after = listing->after;
  ask->data = Buffer::of(kListBytes);
  ask->bytes = kListBytes;
  requests_->submit(
      std::move(ask), now() + 2 * options_.timeout_ns, true,
      [self = shared_from_this(), listing = std::move(listing)](Code code, std::unique_ptr<ObjectRequest> back) {
        if (code == Code::ok) code = take_page(*listing, *back);
        if (code != Code::ok || !back->more) return listing->done(code);
        self->list(listing);
      });
}

Code StoreCore::take_page(Listing& listing, const ObjectRequest& page) {
  std::string_view left(reinterpret_cast<const char*>(page.data.bytes.get()), page.done);
  while (!left.empty()) {
    const size_t end = left.find('\0');
    const std::string_view name = left.substr(0, end);
    // A listing that does not advance would be read for ever.
    if (end == std::string_view::npos || name <= listing.after || !name.starts_with(listing.prefix) ||
        ++listing.names > kMaxListed) {
      return Code::damaged;
    }
    listing.take(name);
    listing.after = name;
    left.remove_prefix(end + 1);
  }
  return page.more && page.done == 0 ? Code::damaged : Code::ok;
}

// Epochs are read first: a process that does not know of an ended epoch must not find its records. They are listed
// again every kEpochsNs: an index object may tell of an epoch too late, or never, because its writer ended or because
// it was removed before this process saw it.
void StoreCore::read_epochs(const ObjectRequest* first) {
  auto rows = std::make_shared<std::vector<NamespaceEpoch>>();
  auto listing = std::make_shared<Listing>();
  listing->prefix = kEpochPrefix;
  listing->take = [rows](std::string_view name) {
    if (rows->size() > kMaxListedEpochs) return;
    if (const auto row = parse_epoch_name(name)) rows->push_back(*row);
  };
  listing->done = [self = shared_from_this(), rows](Code code) {
    if (code == Code::ok) self->epochs_listed(std::move(*rows));
    if (self->epochs_known_) return self->poll_indexes();
    self->poll_later();
  };
  if (first != nullptr) {
    const Code code = take_page(*listing, *first);
    if (code != Code::ok) return read_epochs();
    if (!first->more) return listing->done(code);
  }
  list(std::move(listing));
}

void StoreCore::epochs_listed(std::vector<NamespaceEpoch> rows) {
  const bool all = rows.size() <= kMaxListedEpochs && learn_epochs(std::move(rows), true);
  bool first = false;
  {
    MutexLock lock(mutex_);
    epochs_read_ns_ = now();
    first = !all && !too_many_epochs_;
    too_many_epochs_ = !all;
  }
  epochs_known_.store(all, std::memory_order_release);
  if (first) {
    say(LogLevel::error, "it lists epochs of more than " + std::to_string(kMaxListedEpochs) +
                             " namespaces: nothing is found in it until they are removed");
  }
}

// Reports the rows of a listing each time, for a namespace that was being opened at the first report, and for one that
// another tier kept from being invalidated. Returns false if there was no place for a row of a listing.
bool StoreCore::learn_epochs(std::vector<NamespaceEpoch> rows, bool listed) {
  drop_implausible(rows);
  std::vector<NamespaceEpoch> reported;
  bool all = true;
  {
    MutexLock lock(mutex_);
    for (const NamespaceEpoch& row : rows) {
      // The object of an epoch is older than every index object that tells of it: what has no place here is in the
      // next listing, if it is true.
      if (epochs_.size() >= (listed ? 2U : 1U) * kMaxListedEpochs && !epochs_.contains(row.base)) {
        all = !listed && all;
        continue;
      }
      uint64_t& known = epochs_[row.base];
      if (row.epoch < known || (row.epoch == known && !listed)) continue;
      known = row.epoch;
      reported.push_back(row);
    }
  }
  if (listener_ != nullptr && listening_.enter()) {
    for (const NamespaceEpoch& row : reported) listener_->epoch_raised(index_number_, row);
    listening_.leave();
  }
  return all;
}

void StoreCore::poll() {
  if (closing_) return end_shutdown();
  bool due = false;
  {
    MutexLock lock(mutex_);
    due = (!epochs_known_ && !too_many_epochs_) || now() >= epochs_read_ns_ + kEpochsNs;
  }
  if (due) return read_epochs();
  poll_indexes();
}

void StoreCore::poll_indexes() {
  if (closing_) return end_shutdown();
  bool whole = false;
  const uint64_t at = now();
  {
    MutexLock lock(mutex_);
    whole = last_whole_ns_ == 0 || at >= last_whole_ns_ + kWholeNs;
  }
  const uint64_t ms = unix_ms();
  auto found = std::make_shared<std::vector<Stamp>>();
  auto listing = std::make_shared<Listing>();
  listing->prefix = kIndexPrefix;
  if (!whole) listing->after = name_before(kIndexPrefix, ms > kOverlapMs ? ms - kOverlapMs : 0);
  listing->take = [found](std::string_view name) {
    if (const auto stamp = parse_stamp(kIndexPrefix, name)) found->push_back(*stamp);
  };
  listing->done = [self = shared_from_this(), found, whole, at](Code code) {
    if (code == Code::ok) self->follow(*found, whole ? std::max<uint64_t>(at, 1) : 0);
    self->poll_later();
  };
  list(std::move(listing));
}

void StoreCore::poll_later() {
  if (closing_) return end_shutdown();
  publish_soon();
  executor_.post_at(now() + options_.poll_ns, [self = shared_from_this()] { self->poll(); });
}

// `whole_ns`: if it is not 0, `found` has all index objects of the store at that time.
void StoreCore::follow(const std::vector<Stamp>& found, uint64_t whole_ns) {
  const bool whole = whole_ns != 0;
  uint64_t failed = 0;
  {
    MutexLock lock(mutex_);
    failed = failed_reads_;
  }
  in_pages(found.size(), [&](size_t i) KVBM_NO_TSA {
    if (!opaque_indexes_.contains(found[i]) && known_indexes_.insert(found[i]).second) to_read_[found[i]];
  });
  if (whole) {
    forget_others(&StoreCore::known_indexes_, found);
    forget_others(&StoreCore::opaque_indexes_, found);
    // Once all are queued, and before more is read: a read that fails asks for another full listing.
    MutexLock lock(mutex_);
    if (failed_reads_ == failed) last_whole_ns_ = whole_ns;
  }
  // An index object is removed when all of its packs are, so packs older than every index object have none.
  const uint64_t oldest = found.empty() ? unix_ms() : found.front().ms;
  for (bool more = whole; more;) {
    let_finds_in();
    MutexLock lock(mutex_);
    const Stamp* const pack = index_.oldest();
    more = pack != nullptr && pack->ms + kUntoldMs < oldest;
    if (more) counts_.evicted += index_.drop(Stamp(*pack));
  }
  read_indexes();
}

// Forgets the names of index objects that a full listing, in order, did not have. A recent one may have been written or
// found since that listing began. One that is still to be read stays, so that a later listing does not queue it twice.
void StoreCore::forget_others(std::set<Stamp> StoreCore::*names, const std::vector<Stamp>& listed) {
  const uint64_t ms = unix_ms(), recent = ms - std::min(ms, kOverlapMs);
  Stamp next;
  for (bool more = true; more;) {
    let_finds_in();
    MutexLock lock(mutex_);
    auto at = (this->*names).lower_bound(next);
    for (size_t n = 0; at != (this->*names).end() && n < kRecordsAtOnce; ++n) {
      const bool is_gone = (at->ms < recent || at->ms > ms + kOverlapMs) && !to_read_.contains(*at) &&
                           !std::binary_search(listed.begin(), listed.end(), *at);
      at = is_gone ? (this->*names).erase(at) : std::next(at);
    }
    more = at != (this->*names).end();
    if (more) next = *at;
  }
}

// Returns null if nothing is to be read now.
std::pair<const Stamp, StoreCore::ToRead>* StoreCore::next_to_read() {
  if (reading_ >= kReadAtOnce) return nullptr;
  const auto next =
      std::find_if(to_read_.begin(), to_read_.end(), [](const auto& each) { return each.second != ToRead::requested; });
  if (next == to_read_.end() || (next->second == ToRead::whole && reading_large_)) return nullptr;
  const bool full = arrived_.size() >= kMaxArrived || arrived_bytes_ >= kMaxArrivedBytes;
  return full && next != to_read_.begin() ? nullptr : &*next;
}

void StoreCore::read_indexes() {
  for (;;) {
    Stamp stamp;
    bool large = false;
    {
      MutexLock lock(mutex_);
      auto* const next = next_to_read();
      if (next == nullptr) return;
      stamp = next->first;
      large = std::exchange(next->second, ToRead::requested) == ToRead::whole;
      reading_large_ = reading_large_ || large;
      ++reading_;
    }
    // Requests the first kListBytes only, because most index objects are smaller. A larger one is requested once more,
    // with its whole size.
    auto get = request(Verb::get, stamped_name(kIndexPrefix, stamp));
    get->bytes = large ? kMaxIndexBytes : kListBytes;
    get->data = Buffer::of(get->bytes);
    requests_->submit(std::move(get), now() + (large ? 4 : 2) * options_.timeout_ns, false,
                      [self = shared_from_this(), stamp, large](Code code, std::unique_ptr<ObjectRequest> back) {
                        self->index_read(stamp, large, code, std::move(back));
                      });
  }
}

// Marks an index object to be read once more, with its whole size. False: it is not wanted any more.
bool StoreCore::note_large(const Stamp& stamp) {
  MutexLock lock(mutex_);
  const auto at = to_read_.find(stamp);
  if (at == to_read_.end()) return false;
  at->second = ToRead::whole;
  --reading_;
  return true;
}

void StoreCore::note_opaque(const Stamp& stamp) {
  known_indexes_.erase(stamp);
  opaque_indexes_.insert(stamp);
}

void StoreCore::index_read(const Stamp& stamp, bool large, Code code, std::unique_ptr<ObjectRequest> back) {
  if (code == Code::ok && !large && back->done == back->bytes) {
    if (!closing_ && note_large(stamp)) {
      back.reset();  // before more is read
      return read_indexes();
    }
    code = Code::closed;
  }
  std::unique_ptr<IndexObject> index;
  Status wrong;
  if (code == Code::ok) {
    auto decoded = decode_index(ConstBytes(back->data.span()).first(back->done));
    if (decoded.ok()) {
      index = std::make_unique<IndexObject>(std::move(decoded).value());
    } else {
      wrong = decoded.status();
    }
  }
  bool first_wrong = false;
  {
    MutexLock lock(mutex_);
    --reading_;
    if (large) reading_large_ = false;
    if (code != Code::ok && code != Code::miss && !closing_) {
      // The store has failed: the next poll lists again.
      to_read_.erase(stamp);
      known_indexes_.erase(stamp);
      last_whole_ns_ = 0;
      ++failed_reads_;
    } else {
      first_wrong = !wrong.ok() && counts_.damaged++ == 0;
      missed_index_ = missed_index_ || !wrong.ok();
      if (!wrong.ok()) note_opaque(stamp);
      Arrived& arrived = arrived_[stamp];
      arrived.bytes = index != nullptr ? back->done : 0;
      arrived.index = std::move(index);
      arrived_bytes_ += arrived.bytes;
    }
  }
  if (first_wrong) say(LogLevel::warning, wrong.message() + ": " + stamped_name(kIndexPrefix, stamp));
  apply_in_order();
  if (closing_) return end_shutdown();
  if (code == Code::ok || code == Code::miss) read_indexes();
}

void StoreCore::apply_in_order() {
  for (;;) {
    Stamp stamp;
    std::unique_ptr<IndexObject> index;
    {
      MutexLock lock(mutex_);
      if (applying_ || to_read_.empty()) return;
      stamp = to_read_.begin()->first;
      const auto at = arrived_.find(stamp);
      if (at == arrived_.end()) return;
      index = std::move(at->second.index);
      arrived_bytes_ -= at->second.bytes;
      arrived_.erase(at);
      to_read_.erase(stamp);
      applying_ = true;
    }
    if (index != nullptr) apply(stamp, *index);
    MutexLock lock(mutex_);
    applying_ = false;
  }
}

void StoreCore::apply(const Stamp& stamp, const IndexObject& index) {
  (void)learn_epochs(index.epochs, false);
  bool full = false;
  // Sizes of packs are what their writer says.
  uint64_t counted = options_.capacity_bytes == 0 ? UINT64_MAX : options_.capacity_bytes / kCountedShare;
  for (const PackRow& pack : index.packs) {
    let_finds_in();
    MutexLock lock(mutex_);
    if (index_.knows(pack.stamp) || pack.records.empty()) continue;
    if (index_.add(pack, counted)) {
      counted -= std::min(counted, pack.bytes);
      continue;
    }
    full = full || counts_.dropped_full == 0;
    counts_.dropped_full += pack.records.size();
    note_opaque(stamp);
  }
  in_pages(index.erased.size(), [&](size_t i) KVBM_NO_TSA { index_.erase(index.erased[i], stamp.ms); });
  FamilyErasure erasure;
  in_pages(index.families.size(), [&](size_t i) KVBM_NO_TSA {
    const ErasedFamily& row = index.families[i];
    const uint64_t until = std::min(row.until_ms, stamp.ms);
    const Stamp* const oldest = index_.oldest();
    if (oldest == nullptr || until < oldest->ms) return;  // erases nothing that is here
    if (index_.has_family(row.family)) erasure.add(row.family, until);
  });
  erase_families(erasure);
  if (full) say(LogLevel::warning, "its index has no room for all that is in the store: raise the option index");
}

}  // namespace kvbm::tier::store
