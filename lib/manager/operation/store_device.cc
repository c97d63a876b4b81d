// Storing out of device memory: chunks are larger, and slots of a lost device are kept until it certainly writes no
// more.
#include <utility>

#include "base/thread/memory_wait.h"
#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/operation/device_mover.h"
#include "manager/operation/store.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

// Slots that a lost device may still write to. They are released when the transfers have certainly ended, which may
// be never; the arena lives as long.
struct OrphanedSlots {
  explicit OrphanedSlots(HostTier& host) : owner(host.lifetime().keep(host)), arena(host.shared_arena()) {}
  ~OrphanedSlots() {
    const auto host = owner.lock();
    if (host == nullptr) return;
    host->release(slots);
    // A transfer thread may run this, and destroying the manager would end that thread: the executor drops the last
    // reference.
    const MemoryWait no_error_path;
    host->env().executor->post([host] {});
  }
  OrphanedSlots(const OrphanedSlots&) = delete;
  OrphanedSlots& operator=(const OrphanedSlots&) = delete;
  const std::weak_ptr<HostTier> owner;
  const std::shared_ptr<tier::HostArena> arena;
  std::vector<SlotId> slots;
};

}  // namespace

struct StoreOperation::Flight {
  Flight(HostTier& host, device::Transfers& transfers, std::shared_ptr<device::StreamPoint> after)
      : orphaned(std::make_shared<OrphanedSlots>(host)),
        mover(transfers, DeviceFlight::Way::gather, std::move(after), orphaned) {}
  const std::shared_ptr<OrphanedSlots> orphaned;
  DeviceMover mover;
};

void StoreOperation::begin_flight() {
  flight_ = std::make_shared<Flight>(host_, request_.cache->device()->transfers(), std::move(request_.after));
  mover_ = &flight_->mover;
  most_keys_ = kDeviceChunk;
}

// Ends references to slots that were not published.
void StoreOperation::release_unpublished(std::span<const SlotId> slots) {
  if (!lost_) return host_.release(slots);
  const MemoryWait no_error_path;
  flight_->orphaned->slots.insert(flight_->orphaned->slots.end(), slots.begin(), slots.end());
}

}  // namespace kvbm::manager
