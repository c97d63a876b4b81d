#include "manager/common/events.h"

#include <utility>
#include <vector>

namespace kvbm::manager {

using copy::Event;
using copy::EventKind;

void Events::subscribe(std::shared_ptr<copy::Queue> queue) {
  MutexLock lock(mutex_);
  queue_ = std::move(queue);
  wanted_.store(queue_ != nullptr, std::memory_order_relaxed);
}

void Events::send(std::span<Event> events) {
  MutexLock lock(mutex_);
  if (queue_ == nullptr) return;
  for (Event& event : events) event.sequence = ++sequence_;
  queue_->push_events(events);
}

void Events::publish(EventKind kind, TierIndex tier, FamilyId family, std::span<const Key> keys,
                     std::span<const Key> parents) {
  if (!wanted() || keys.empty()) return;
  const Family& of = families_.get(family);
  std::vector<Event> events(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    events[i].kind = kind;
    events[i].tier = tier;
    events[i].ns = of.ns;
    events[i].key = keys[i];
    if (i < parents.size()) events[i].parent = parents[i];
    events[i].component = of.component;
  }
  send(events);
}

void Events::publish(EventKind kind, TierIndex tier, std::span<const Identity> ids) {
  if (!wanted() || ids.empty()) return;
  std::vector<Event> events(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const Family& of = families_.get(ids[i].family);
    events[i].kind = kind;
    events[i].tier = tier;
    events[i].ns = of.ns;
    events[i].key = ids[i].key;
    events[i].component = of.component;
  }
  send(events);
}

void Events::disabled(TierIndex tier) {
  if (!wanted()) return;
  Event event;
  event.kind = EventKind::disabled;
  event.tier = tier;
  send({&event, 1});
}

void Events::cleared(const NamespaceId& ns) {
  if (!wanted()) return;
  Event event;
  event.kind = EventKind::cleared;
  event.ns = ns;
  send({&event, 1});
}

}  // namespace kvbm::manager
