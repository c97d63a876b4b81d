#include "manager/session_devices.h"

#include <utility>

namespace kvbm::manager {

void SessionDevices::add_staging(std::shared_ptr<Arena> arena) {
  MutexLock lock(mutex_);
  for (const auto& [key, known] : devices_) pin(known, arena);
  staging_.push_back(std::move(arena));
}

cluster::session::SliceMover& SessionDevices::mover(const std::shared_ptr<device::Transfers>& transfers,
                                                    const std::shared_ptr<device::Device>& device) {
  MutexLock lock(mutex_);
  Known& known = devices_[transfers.get()];
  if (known.mover == nullptr) {
    known.transfers = transfers;
    known.device = device;
    known.mover = std::make_unique<SessionMover>(
        *transfers, "device " + std::to_string(device->facts().ordinal), work_, links_);
    for (const auto& arena : staging_) pin(known, arena);
  }
  return *known.mover;
}

// The device keeps what it knows until its transfers end, so the arena stays mapped as long.
void SessionDevices::pin(const Known& known, const std::shared_ptr<Arena>& arena) {
  work_.post([device = known.device, transfers = std::weak_ptr(known.transfers), arena, log = log_] {
    auto pinned = device::PinnedHost::pin(device, {arena->data(), arena->bytes()}, false, 1);
    const auto alive = transfers.lock();
    if (!pinned.ok()) {
      if (log != nullptr) {
        log->write(LogLevel::warning, "session",
                   "staging of sessions is not registered with a device, copies are slower: " +
                       pinned.status().message());
      }
      return;
    }
    if (alive == nullptr) return;
    device::PinnedHost* raw = pinned.value().release();
    alive->know(std::shared_ptr<const device::PinnedHost>(raw, [arena](const device::PinnedHost* p) { delete p; }));
  });
}

}  // namespace kvbm::manager
