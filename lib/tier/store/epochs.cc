// Epochs of namespaces, which every process that uses the store must know.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tier/store/store_core.h"

namespace kvbm::tier::store {

namespace {
constexpr uint64_t kWriteNs = 3'000'000'000;
}  // namespace

uint64_t StoreCore::epoch(const NamespaceId& base) {
  MutexLock lock(mutex_);
  const auto at = epochs_.find(base);
  return at == epochs_.end() ? 0 : at->second;
}

// Drops epochs that no host of this library writes. The namespace stays at its own, and can still be invalidated.
void StoreCore::drop_implausible(std::vector<NamespaceEpoch>& rows) {
  NamespaceEpoch one;
  std::erase_if(rows, [&one](const NamespaceEpoch& row) {
    if (row.epoch <= kMaxSharedEpoch) return false;
    one = row;
    return true;
  });
  if (one.epoch == 0) return;
  {
    MutexLock lock(mutex_);
    if (std::exchange(said_implausible_, true)) return;
  }
  say(LogLevel::error, "it has an epoch beyond 2^63 for a namespace, which is ignored: remove the object " +
                           epoch_name(one.base, one.epoch) + " if it is there, and find out what wrote it");
}

// The epochs are on the medium before it returns: a process that starts later, or on another host, must not find
// records of an ended epoch.
Status StoreCore::set_epochs(std::span<const EpochRow> rows) {
  if (!options_.write) return {};
  bool changed = false;
  for (const EpochRow& row : rows) {
    // Other hosts, and this one after a restart, would ignore it.
    if (row.epoch > kMaxSharedEpoch) {
      return {Code::invalid_argument, "a store keeps epochs up to 2^63: open the namespace at a lower one", describe()};
    }
    uint64_t before = 0;
    {
      MutexLock lock(mutex_);
      const auto known = epochs_.find(row.base);
      before = known == epochs_.end() ? 0 : known->second;
      if (before >= row.epoch) continue;
      if (known == epochs_.end() && epochs_.size() >= kMaxEpochs) {
        return {Code::at_limit, "a store keeps epochs of 65,536 namespaces at most", describe()};
      }
    }
    if (requests_->backs_off()) {
      return {Code::io_error, "a store cannot write down the namespace's new epoch now",
              describe() + ": " + requests_->trouble()};
    }
    auto put = request(Verb::put, epoch_name(row.base, row.epoch));
    put->listed = true;
    put->data = Buffer::of(8);
    store_le(put->data.bytes.get(), row.epoch);
    put->bytes = 8;
    put->timeout_ns = std::min(kWriteNs, options_.timeout_ns);
    const auto back = requests_->run(std::move(put));
    if (back == nullptr || back->code != Code::ok) {
      return {Code::io_error, "a store did not write down the namespace's new epoch",
              describe() + ": " + (back == nullptr ? "it did not answer in time" : back->message)};
    }
    MutexLock lock(mutex_);
    uint64_t& known = epochs_[row.base];
    known = std::max(known, row.epoch);
    // Without a place there, other hosts learn of it when they list epochs.
    (void)unpublished_rows_.raise_epoch(row.base, row.epoch);
    changed = true;
    if (before == 0) continue;
    // The caller does not wait for the removal.
    executor_.post(
        [self = shared_from_this(), old = epoch_name(row.base, before)] { self->remove(old, true, [](Code) {}); });
  }
  if (changed) publish_soon();
  return {};
}

}  // namespace kvbm::tier::store
