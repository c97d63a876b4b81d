// Publishes block events to the one queue that subscribed.
//
// Sequence numbers have no gaps at the source; a reader that sees a gap has lost events. Lock: `mutex_`, taken before
// Queue's. Without a subscriber nothing is published (one relaxed load).
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "base/family/family_table.h"
#include "base/thread/mutex.h"
#include "copy/queue.h"

namespace kvbm::manager {

class Events {
 public:
  explicit Events(const FamilyTable& families) : families_(families) {}

  void subscribe(std::shared_ptr<copy::Queue> queue);
  [[nodiscard]] bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed); }

  // Publishes that keys[i] were stored in or removed from `tier`; `parents` may be empty.
  void publish(copy::EventKind kind, TierIndex tier, FamilyId family, std::span<const Key> keys,
               std::span<const Key> parents);
  void publish(copy::EventKind kind, TierIndex tier, std::span<const Identity> ids);
  void disabled(TierIndex tier);
  // Publishes that every block of the namespace is gone from every tier. NamespaceId{}: of all namespaces without a
  // handle.
  void cleared(const NamespaceId& ns);

 private:
  void send(std::span<copy::Event> events);

  const FamilyTable& families_;
  std::atomic<bool> wanted_{false};
  Mutex mutex_;
  std::shared_ptr<copy::Queue> queue_ KVBM_GUARDED_BY(mutex_);
  uint64_t sequence_ KVBM_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvbm::manager
