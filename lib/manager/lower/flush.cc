// Flush: waits until offloaded blocks are in their tier, and until they survive a power cut there. For a shared tier
// set see share_flush.cc.
#include <atomic>
#include <memory>
#include <utility>

#include "base/thread/memory_wait.h"
#include "manager/lower/coded_tiers.h"
#include "manager/lower/lower_tiers.h"
#include "manager/lower/offload.h"

namespace kvbm::manager {

void LowerTiers::flush(UniqueFunction<void()> done) {
  auto waiting = std::make_shared<std::atomic<size_t>>(offloaders_.size() + 1);
  auto call = std::make_shared<UniqueFunction<void()>>(std::move(done));
  const auto one = [waiting, call] {
    if (waiting->fetch_sub(1, std::memory_order_acq_rel) == 1) (*call)();
  };
  for (auto& offloader : offloaders_) offloader->when_idle(one);
  one();
}

// Returns the number of offloaded blocks that tiers which store records did not take.
uint64_t LowerTiers::not_taken() {
  uint64_t n = 0;
  for (size_t i = 0; i < count(); ++i) n += is_storage(*all()[i]) ? offloaders_[i]->failed() : 0;
  return n;
}

void LowerTiers::sync_tiers(UniqueFunction<void(Code)> done) {
  struct Syncing {
    std::atomic<size_t> waiting{1};
    std::atomic<bool> failed{false}, unsupported{false};
    UniqueFunction<void(Code)> done;
  };
  auto syncing = std::make_shared<Syncing>();
  syncing->done = std::move(done);
  const auto ended = [syncing, keep = this->keep()](const Status& status) {
    if (status.code() == Code::unsupported) {
      syncing->unsupported.store(true, std::memory_order_relaxed);
    } else if (!status.ok()) {
      syncing->failed.store(true, std::memory_order_relaxed);
      keep->sync_failed_.store(true, std::memory_order_release);
      keep->host_.env().log->write(LogLevel::error, "manager", status.message());
    }
    if (syncing->waiting.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const bool cannot = syncing->unsupported.load(std::memory_order_relaxed);
    syncing->done(cannot                                            ? Code::unsupported
                  : syncing->failed.load(std::memory_order_relaxed) ? Code::partial
                                                                    : Code::ok);
  };
  bool any = false;
  for (const auto& tier : all()) {
    if (!is_storage(*tier)) continue;
    any = true;
    syncing->waiting.fetch_add(1, std::memory_order_relaxed);
    tier->sync(ended);
  }
  ended(any ? Status() : Status(Code::unsupported, "there is no tier below host memory"));
}

void LowerTiers::flush_and_report(bool durable, UniqueFunction<bool(Code)> done) {
  const MemoryWait until_done;
  const uint64_t reported = not_taken_reported_.load(std::memory_order_acquire);
  bool out = false;
  const bool again = sync_failed_.exchange(false, std::memory_order_acq_rel);
  for (size_t i = 0; i < count(); ++i) {
    const auto index = static_cast<TierIndex>(i + 1);
    if (!is_storage(*all()[i])) continue;
    out = out || (disabled(index) && options_.tiers[i].admission != AdmissionKind::on_request);
    if ((again || offloaders_[i]->failed() != 0) && options_.tiers[i].admission == AdmissionKind::all)
      offer_missing(index);
  }
  flush([this, keep = this->keep(), durable, reported, out, call = std::move(done)]() mutable {
    auto report = [this, keep, reported, out, call = std::move(call)](Code synced) mutable {
      const uint64_t now = not_taken();
      const Code code = synced != Code::ok ? synced : out || now != reported ? Code::partial : Code::ok;
      if (!call(code) || code == Code::unsupported) return;
      uint64_t known = reported;
      while (known < now && !not_taken_reported_.compare_exchange_weak(known, now, std::memory_order_acq_rel)) {
      }
    };
    if (durable)
      sync_tiers(std::move(report));
    else
      report(Code::ok);
  });
}

}  // namespace kvbm::manager
