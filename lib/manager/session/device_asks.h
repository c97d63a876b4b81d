// Requests memory of a device's driver for sessions. The call runs on the device's own thread, so one that does not
// return blocks no session, and each request is answered exactly once.
//
// Thread: any. Answers arrive on the links' thread, and not at all once that is gone. Lock: mutex_, a leaf.
#pragma once

#include <memory>
#include <vector>

#include "base/function.h"
#include "base/thread/mutex.h"
#include "base/thread/weak_executor.h"
#include "cluster/session/mover.h"
#include "device/context/device.h"

namespace kvbm::manager {

class DeviceAsks : public std::enable_shared_from_this<DeviceAsks> {
 public:
  using Memory = Result<cluster::session::SharedMemory>;
  using Done = cluster::session::SliceMover::MemoryDone;

  static std::shared_ptr<DeviceAsks> create(std::shared_ptr<device::Device> device,
                                            std::shared_ptr<WeakExecutor> links);
  // Makes `call` on the device's thread. tier_disabled: the device was lost before the call ended.
  void ask(UniqueFunction<Memory()> call, Done done);
  [[nodiscard]] const std::shared_ptr<device::Device>& device() const noexcept { return device_; }

 private:
  DeviceAsks(std::shared_ptr<device::Device> device, std::shared_ptr<WeakExecutor> links)
      : device_(std::move(device)), links_(std::move(links)) {}
  void answer(Done& asked, Memory memory);
  void give_up();

  const std::shared_ptr<device::Device> device_;
  const std::shared_ptr<WeakExecutor> links_;
  Mutex mutex_;
  // The callbacks are guarded by mutex_, too; an empty one belongs to an answered request.
  std::vector<std::shared_ptr<Done>> open_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager
