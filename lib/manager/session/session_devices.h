// Devices with blocks of sessions: the mover of each, staging that each can reach, and points of their streams that a
// session waits for.
//
// Staging of sessions is mapped when the first one needs it; a device is added with the first session of a cache on it.
// In either order every device gets to know all staging. If staging cannot be registered, its bytes go through the
// device's own staging, which is slower.
//
// Thread: any. Blocks: for some milliseconds when staging and a device meet for the first time. Lock: mutex_, held over
// calls of the driver then; no other lock is taken under it except those of Transfers.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/memory/memory.h"
#include "base/telemetry/log.h"
#include "base/thread/executor.h"
#include "base/thread/mutex.h"
#include "base/thread/weak_executor.h"
#include "manager/common/options.h"
#include "manager/device/device_caches.h"
#include "manager/device/stream_waits.h"
#include "manager/session/session_mover.h"

namespace kvbm::manager {

class SessionDevices {
 public:
  // `links`: of the sessions; it may end before this object, after close(). `work` outlives this object. boot: of this
  // machine, within which processes share device memory; zero: nothing is shared. rdma: whether the links' transport
  // shall reach devices.
  SessionDevices(Executor& work, Executor& links, const Log* log, const DeviceShare::BootId& boot,
                 NodeOptions::DeviceRdma rdma)
      : work_(work),
        links_(links),
        log_(log),
        boot_(boot),
        rdma_(rdma),
        links_executor_(std::make_shared<WeakExecutor>(links)),
        waits_(StreamWaits::create(work)) {}
  ~SessionDevices() { waits_->close(); }
  SessionDevices(const SessionDevices&) = delete;
  SessionDevices& operator=(const SessionDevices&) = delete;

  // Adds staging of sessions. It stays mapped until this object and the devices that know it are gone.
  // Thread: the links'.
  void add_staging(std::shared_ptr<Arena> arena);
  // Returns the device's mover. It lives as long as this object, and may be used while the device is open.
  cluster::session::SliceMover& mover(const std::shared_ptr<AttachedDevice>& device);
  [[nodiscard]] StreamWaits& waits() noexcept { return *waits_; }
  // Posts to the links' thread, for work that ends elsewhere.
  [[nodiscard]] const std::shared_ptr<WeakExecutor>& links_executor() const noexcept { return links_executor_; }
  // Closes the links' side; called before the links end.
  void close() { links_executor_->close(); }

 private:
  struct Known {
    std::weak_ptr<AttachedDevice> device;  // ends with the manager, before the memory of the host tier
    std::unique_ptr<SessionMover> mover;
  };
  void pin(AttachedDevice& device, const std::shared_ptr<Arena>& arena) KVBM_REQUIRES(mutex_);

  Executor& work_;
  Executor& links_;
  const Log* const log_;
  const DeviceShare::BootId boot_;
  const NodeOptions::DeviceRdma rdma_;
  const std::shared_ptr<WeakExecutor> links_executor_;
  const std::shared_ptr<StreamWaits> waits_;
  Mutex mutex_;
  std::map<const AttachedDevice*, Known> devices_ KVBM_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Arena>> staging_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager
