// Removes old packs by age and by capacity. One live writer does it for all. If two believe that they are elected, both
// remove the same oldest packs, and no harm is done.
#include <algorithm>

#include "tier/store/store_core.h"

namespace kvbm::tier::store {

namespace {
constexpr uint64_t kFirstSignNs = 1'000'000'000;
constexpr uint64_t kSignNs = 30'000'000'000;
// Distance of a sign from now, either way, up to which its writer counts, and from which on the sign is removed.
constexpr uint64_t kAliveMs = 90'000;
constexpr uint64_t kForgottenMs = 3'600'000;
// Most objects that one round removes.
constexpr size_t kRoundObjects = 1000;
// Time between two searches for unnamed packs. Each lists all packs.
constexpr uint64_t kUnnamedNs = 3'600'000'000'000;
}  // namespace

void StoreCore::remove(std::string name, bool listed, std::function<void(Code)> done) {
  auto gone = request(Verb::remove, std::move(name));
  gone->listed = listed;
  requests_->submit(std::move(gone), now() + 2 * options_.timeout_ns, false,
                    [done = std::move(done)](Code code, std::unique_ptr<ObjectRequest>) { done(code); });
}

void StoreCore::collect_later() {
  if (!options_.write || (options_.capacity_bytes == 0 && options_.ttl_s == 0)) return;
  uint64_t wait = kSignNs;
  {
    MutexLock lock(mutex_);
    if (last_sign_ == 0) wait = kFirstSignNs;
  }
  executor_.post_at(now() + wait, [self = shared_from_this()] {
    if (self->closing_) return;
    self->sign();
    self->collect_later();
  });
}

// Signs that this process is alive, and reads which others are.
void StoreCore::sign() {
  uint64_t before = 0;
  const uint64_t ms = unix_ms();
  {
    MutexLock lock(mutex_);
    before = std::exchange(last_sign_, ms);
  }
  auto put = request(Verb::put, writer_name(writer_, ms));
  put->listed = true;
  put->data = Buffer::of(8);
  store_le(put->data.bytes.get(), ms);
  put->bytes = 8;
  put->expire_s = kForgottenMs / 1000;
  requests_->submit(std::move(put), now() + options_.timeout_ns, false, [](Code, std::unique_ptr<ObjectRequest>) {});
  if (before != 0) remove(writer_name(writer_, before), true, [](Code) {});
  auto signs = std::make_shared<std::vector<Stamp>>();
  auto listing = std::make_shared<Listing>();
  listing->prefix = kWriterPrefix;
  listing->take = [signs](std::string_view name) {
    if (const auto sign = parse_writer_name(name)) signs->push_back(*sign);
  };
  listing->done = [self = shared_from_this(), signs](Code code) {
    if (code == Code::ok && !self->closing_) self->elect(std::move(*signs));
  };
  list(std::move(listing));
}

void StoreCore::elect(std::vector<Stamp> signs) {
  const uint64_t ms = unix_ms();
  uint64_t first = writer_;
  for (const Stamp& sign : signs) {
    // A sign from the future is of a wrong clock, and would be alive for as long as the clock is ahead.
    const uint64_t away = sign.ms > ms ? sign.ms - ms : ms - sign.ms;
    if (away <= kAliveMs) first = std::min(first, sign.writer);
    if (sign.writer != writer_ && away > kForgottenMs) {
      remove(writer_name(sign.writer, sign.ms), true, [](Code) {});
    }
  }
  {
    MutexLock lock(mutex_);
    elected_ = first == writer_;
  }
  collect();
  collect_unnamed();
}

void StoreCore::collect() {
  Packs packs;
  std::vector<Stamp> indexes;
  {
    MutexLock lock(mutex_);
    if (!elected_ || collecting_ || closing_) return;
    find_old(packs, indexes);
    if (packs.empty() && indexes.empty()) return;
    collecting_ = true;
  }
  const auto left = std::make_shared<std::atomic<size_t>>(packs.size() + indexes.size());
  const auto ended = [self = shared_from_this(), left] {
    if (left->fetch_sub(1) == 1) self->collected();
  };
  for (const auto& [stamp, bytes] : packs) {
    remove(stamped_name(kPackPrefix, stamp), false,
           [self = shared_from_this(), stamp = stamp, bytes = bytes, ended](Code code) {
             if (code == Code::ok) {
               MutexLock lock(self->mutex_);
               self->counts_.reclaimed_bytes += bytes;
               self->counts_.evicted += self->index_.drop(stamp);
             }
             ended();
           });
  }
  for (const Stamp& stamp : indexes) {
    remove(stamped_name(kIndexPrefix, stamp), true, [self = shared_from_this(), stamp, ended](Code code) {
      if (code == Code::ok) {
        MutexLock lock(self->mutex_);
        self->known_indexes_.erase(stamp);
        self->opaque_indexes_.erase(stamp);
      }
      ended();
    });
  }
}

// Finds what one round removes.
void StoreCore::find_old(Packs& packs, std::vector<Stamp>& indexes) {
  const uint64_t ms = unix_ms();
  const uint64_t oldest_ms = options_.ttl_s != 0 && ms > options_.ttl_s * 1000 ? ms - options_.ttl_s * 1000 : 0;
  const Stamp* const oldest = index_.oldest();
  const bool too_old = oldest != nullptr && oldest->ms < oldest_ms;
  // Runs for every pack that was written: nearly always nothing is to be removed.
  const bool index_too_old = !opaque_indexes_.empty() && opaque_indexes_.begin()->ms < oldest_ms;
  if (oldest != nullptr && !exceeds_capacity(index_.stored_bytes()) && !too_old && !index_too_old &&
      (known_indexes_.empty() || known_indexes_.begin()->ms >= oldest->ms)) {
    return;
  }
  uint64_t left = index_.stored_bytes();
  uint64_t keeps = ms;  // packs from here on stay
  index_.for_each_pack([&](const Stamp& stamp, uint64_t bytes) {
    const bool goes = packs.size() < kRoundObjects && (stamp.ms < oldest_ms || exceeds_capacity(left));
    if (!goes) {
      keeps = std::min(keeps, stamp.ms);
      return;
    }
    packs.emplace_back(stamp, bytes);
    left -= bytes;
  });
  // An index object names packs that are older than itself. As long as some are not read yet, the packs that they name
  // are not known, and no index object goes. One with packs that are not known goes by its age.
  const auto take = [&indexes](const std::set<Stamp>& from, uint64_t before) {
    for (auto at = from.begin(); at != from.end() && at->ms < before && indexes.size() < kRoundObjects; ++at) {
      indexes.push_back(*at);
    }
  };
  const uint64_t before = std::min(keeps, ms - std::min(ms, kOverlapMs));
  take(opaque_indexes_, std::min(before, oldest_ms));
  if (to_read_.empty() && !applying_) take(known_indexes_, before);
}

// Ends a round, and begins another one if that left too much.
void StoreCore::collected() {
  bool more = false;
  {
    MutexLock lock(mutex_);
    collecting_ = false;
    more = exceeds_capacity(index_.stored_bytes());
  }
  if (more && !requests_->backs_off()) collect();
}

// Removes packs that no index object names: their writer ended before it could write one. They are removed an hour
// after they were written, and only if this process knows all names.
void StoreCore::collect_unnamed() {
  {
    MutexLock lock(mutex_);
    const bool knows_all =
        last_whole_ns_ != 0 && to_read_.empty() && !applying_ && !missed_index_ && counts_.dropped_full == 0;
    if (!elected_ || closing_ || !knows_all || now() < unnamed_at_) return;
    unnamed_at_ = now() + kUnnamedNs;
  }
  const uint64_t ms = unix_ms();
  const uint64_t until = ms - std::min(ms, kForgottenMs);
  auto unnamed = std::make_shared<std::vector<Stamp>>();
  auto listing = std::make_shared<Listing>();
  listing->prefix = kPackPrefix;
  listing->take = [self = shared_from_this(), unnamed, until](std::string_view name) {
    const auto stamp = parse_stamp(kPackPrefix, name);
    if (!stamp || stamp->ms >= until || unnamed->size() == kRoundObjects) return;
    MutexLock lock(self->mutex_);
    if (!self->index_.knows(*stamp)) unnamed->push_back(*stamp);
  };
  listing->done = [self = shared_from_this(), unnamed](Code code) {
    if (code != Code::ok || self->closing_ || unnamed->empty()) return;
    for (const Stamp& stamp : *unnamed) self->remove(stamped_name(kPackPrefix, stamp), false, [](Code) {});
    self->say(LogLevel::info, "removes " + std::to_string(unnamed->size()) + " packs that nothing names");
    if (unnamed->size() < kRoundObjects) return;
    MutexLock lock(self->mutex_);
    self->unnamed_at_ = 0;  // there may be more
  };
  list(std::move(listing));
}

}  // namespace kvbm::tier::store
