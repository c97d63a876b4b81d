#include "manager/session/session_devices.h"

#include <utility>

#include "device/context/device.h"
#include "device/driver/driver_watch.h"
#include "device/memory/pinned_host.h"
#include "device/transfer/transfers.h"

namespace kvbm::manager {

void SessionDevices::add_staging(std::shared_ptr<Arena> arena) {
  MutexLock lock(mutex_);
  for (const auto& [key, known] : devices_) {
    known.mover->use_staging(arena);
    if (const auto device = known.device.lock()) pin(*device, arena);
  }
  staging_.push_back(std::move(arena));
}

cluster::session::SliceMover& SessionDevices::mover(const std::shared_ptr<AttachedDevice>& device) {
  MutexLock lock(mutex_);
  Known& known = devices_[device.get()];
  if (known.mover == nullptr) {
    known.device = device;
    const std::string name = "device " + std::to_string(device->device().facts().ordinal);
    std::unique_ptr<DeviceShare> share;
    if (boot_ != DeviceShare::BootId{}) {
      share = std::make_unique<DeviceShare>(device->device().shared_from_this(), boot_, links_executor_);
    }
    std::unique_ptr<DeviceDirect> direct;
    if (rdma_ != NodeOptions::DeviceRdma::off) {
      const bool whatever = rdma_ == NodeOptions::DeviceRdma::on;
      direct = std::make_unique<DeviceDirect>(device->device().shared_from_this(), whatever, links_executor_);
    }
    known.mover =
        std::make_unique<SessionMover>(device->transfers(), name, work_, links_, std::move(share), std::move(direct));
    for (const auto& arena : staging_) {
      known.mover->use_staging(arena);
      pin(*device, arena);
    }
  }
  return *known.mover;
}

// The device keeps what it knows until its transfers have ended, and the arena with it.
void SessionDevices::pin(AttachedDevice& device, const std::shared_ptr<Arena>& arena) {
  const Status no_answer(Code::tier_disabled, "a call of the driver did not return");
  const auto made = std::make_shared<Result<std::shared_ptr<const device::PinnedHost>>>(no_answer);
  auto on = device.device().shared_from_this();
  const uint64_t limit_ns = on->watch().limit_ns();
  const bool over = device::call_beside("kvbm-register", limit_ns, [made, arena, on = std::move(on)] {
    auto pinned = device::PinnedHost::pin(on, {arena->data(), arena->bytes()}, 1);
    if (pinned.ok()) {
      *made = std::shared_ptr<const device::PinnedHost>(pinned.value().release(),
                                                        [arena](const device::PinnedHost* p) { delete p; });
    } else {
      *made = pinned.status();
    }
  });
  const Status status = over ? made->status() : no_answer;  // else that thread may still write
  if (status.ok()) {
    device.transfers().know(std::move(*made).value());
  } else if (log_ != nullptr) {
    log_->write(
        LogLevel::warning, "session",
        "staging of sessions is not registered with a device, its copies take a step more: " + status.message());
  }
}

}  // namespace kvbm::manager
