// Block events on their way to the one queue that subscribed.
//
// Sequence numbers have no gaps at the source; a reader that sees one has lost events. Lock: `mutex_`,
// taken before Queue's; nothing is published while nobody listens (one relaxed load).
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "base/family_table.h"
#include "base/mutex.h"
#include "copy/queue.h"

namespace kvbm::manager {

class Events {
 public:
  explicit Events(const FamilyTable& families) : families_(families) {}

  void subscribe(std::shared_ptr<copy::Queue> queue);
  [[nodiscard]] bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed); }

  // keys[i] came to or left `tier`; parents may be empty.
  void publish(copy::EventKind kind, TierIndex tier, FamilyId family, std::span<const Key> keys,
               std::span<const Key> parents);
  void publish(copy::EventKind kind, TierIndex tier, std::span<const Identity> ids);
  void disabled(TierIndex tier);
  // Every block of the namespace has gone from every tier; of all namespaces with the id that none has, NamespaceId{}.
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
