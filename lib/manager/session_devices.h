// Devices that blocks of sessions lie on: who copies for each, staging that each can reach, and points of their streams
// that a session waits for.
//
// Staging of sessions is mapped when the first one needs it, devices come with the first session of a cache on them; in
// either order every device gets to know all staging. Where it cannot be registered the device's own staging stands in
// between, slower and right all the same.
//
// Thread: any. Blocks: for some milliseconds where staging and a device meet for the first time. Lock: mutex_, held over
// calls of the driver then; no other lock is taken under it but those of Transfers.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/executor.h"
#include "base/function.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "manager/device_caches.h"
#include "manager/session_mover.h"

namespace kvbm::manager {

class SessionDevices {
 public:
  // `links`: of the sessions. Both executors outlive this.
  SessionDevices(Executor& work, Executor& links, const Log* log) : work_(work), links_(links), log_(log) {}

  // Staging of sessions from now on. It stays mapped until this and the devices that know it are gone.
  void add_staging(std::shared_ptr<Arena> arena);
  // Of that device; it lives as long as this, and may be used while the device is open.
  cluster::session::SliceMover& mover(const std::shared_ptr<AttachedDevice>& device);

 private:
  struct Known {
    std::weak_ptr<AttachedDevice> device;  // it ends with the manager, before the memory of the host tier
    std::unique_ptr<SessionMover> mover;
  };
  void pin(AttachedDevice& device, const std::shared_ptr<Arena>& arena) KVBM_REQUIRES(mutex_);

  Executor& work_;
  Executor& links_;
  const Log* const log_;
  Mutex mutex_;
  std::map<const AttachedDevice*, Known> devices_ KVBM_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Arena>> staging_ KVBM_GUARDED_BY(mutex_);
};

// Calls `reached`, on a thread of the device's executor, when the stream has come to the point; with tier_disabled where
// the device is lost before. Errors at once: no_memory, tier_disabled; then it is not called.
Status when_reached(AttachedDevice& device, std::shared_ptr<device::StreamPoint> point,
                    UniqueFunction<void(Code)> reached);

}  // namespace kvbm::manager
