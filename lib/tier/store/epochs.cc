// Epochs of namespaces, which every process that uses the store must know.
#include <algorithm>
#include <cstring>

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

// The epochs are on the medium before it returns: a process that starts later, or on another host, must not find
// records of an ended epoch.
Status StoreCore::set_epochs(std::span<const EpochRow> rows) {
  if (!options_.write) return {};
  bool changed = false;
  for (const EpochRow& row : rows) {
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
      return {Code::io_error, "a store cannot write down the namespace's new epoch now", describe() + ": " + requests_->trouble()};
    }
    auto put = request(Verb::put, epoch_name(row.base, row.epoch));
    put->listed = true;
    put->data = Buffer::of(8);
    store_le(put->data.bytes.get(), row.epoch);
    put->bytes = 8;
    put->timeout_ns = std::min(kWriteNs, options_.timeout_ns);
    const auto back = store_->run(std::move(put));
    if (back == nullptr || back->code != Code::ok) {
      return {Code::io_error, "a store did not write down the namespace's new epoch",
              describe() + ": " + (back == nullptr ? "it did not answer in time" : back->message)};
    }
    MutexLock lock(mutex_);
    uint64_t& known = epochs_[row.base];
    known = std::max(known, row.epoch);
    unpublished_rows_.epochs.push_back({row.base, row.epoch});
    changed = true;
    if (before == 0) continue;
    // The caller does not wait for the removal.
    executor_.post([self = shared_from_this(), old = epoch_name(row.base, before)] {
      self->remove(old, true, [](Code) {});
    });
  }
  if (changed) publish_soon();
  return {};
}

}  // namespace kvbm::tier::store
