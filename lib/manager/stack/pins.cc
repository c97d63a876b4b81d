#include "manager/stack/pins.h"

#include <algorithm>
#include <vector>

#include "base/thread/memory_wait.h"
#include "manager/host/host_record.h"

namespace kvbm::manager {

Code Pins::pin(FamilyId family, std::span<const Key> keys, uint64_t owner, uint64_t deadline_ns, block::PinId& id,
               size_t& count, bool takes_lossy) {
  std::vector<SlotId> slots(keys.size(), kNoSlot);
  slots.resize(host_.table().acquire_prefix(family, keys, slots, block::kNoUse));
  count = slots.size();
  id = 0;
  if (host_.has_lossy() && !takes_lossy) {
    const auto lossy =
        std::find_if(slots.begin(), slots.end(), [this](SlotId slot) { return lies_lossy(host_, slot); });
    count = static_cast<size_t>(lossy - slots.begin());
    host_.release(std::span(slots).subspan(count));
    slots.resize(count);
  }
  if (count == 0) return Code::ok;
  struct Release {
    HostTier& host;
    std::span<const SlotId> slots;
    ~Release() { host.release(slots); }
  };
  const Release release_at_end{host_, slots};
  auto pinned = table_.pin(slots, owner, deadline_ns);
  if (pinned.status().code() == Code::at_limit && !table_.expire(host_.env().clock().now_ns()).empty()) {
    pinned = table_.pin(slots, owner, deadline_ns);  // some pins had expired, but the executor had not removed them yet
    host_.space_queue().space_released();
  }
  if (!pinned.ok()) {
    count = 0;
    return pinned.status().code();
  }
  id = pinned.value();
  if (deadline_ns != kNever) arm(deadline_ns);
  return Code::ok;
}

Code Pins::unpin(block::PinId id) {
  const Code code = table_.unpin(id);
  host_.space_queue().space_released();
  return code;
}

size_t Pins::unpin_owner(uint64_t owner) {
  const size_t ended = table_.owner_died(owner).size();
  host_.space_queue().space_released();
  return ended;
}

void Pins::arm(uint64_t deadline_ns) {
  const MemoryWait until_set;  // the pin is there already, and later ones rely on this timer
  uint64_t armed = armed_ns_.load(std::memory_order_relaxed);
  while (deadline_ns < armed) {
    if (!armed_ns_.compare_exchange_weak(armed, deadline_ns, std::memory_order_relaxed)) continue;
    host_.env().executor->post_at(deadline_ns, [this, weak = host_.lifetime().watch()] {
      if (const auto alive = weak.lock()) expire();
    });
    return;
  }
}

void Pins::expire() {
  armed_ns_.store(kNever, std::memory_order_relaxed);
  table_.expire(host_.env().clock().now_ns());
  host_.space_queue().space_released();
  const uint64_t next = table_.next_deadline_ns();
  if (next != kNever) arm(next);
}

}  // namespace kvbm::manager
