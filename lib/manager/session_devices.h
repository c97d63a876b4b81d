// Devices that blocks of sessions lie on: who copies for each, and staging that each can reach.
//
// Staging of sessions is mapped when the first one needs it, devices come with the first session of a cache on them; in
// either order every device gets to know all staging. Registering takes milliseconds and is the executor's work; until
// it is done, and where it cannot be done, the device's own staging stands in between, slower and right all the same.
//
// Thread: any. Blocks: no. Lock: mutex_, a leaf.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "device/pinned_host.h"
#include "device/transfers.h"
#include "manager/session_mover.h"

namespace kvbm::manager {

class SessionDevices {
 public:
  // `links`: of the sessions. Both executors outlive this, and every device given to mover() the work posted to them.
  SessionDevices(Executor& work, Executor& links, const Log* log) : work_(work), links_(links), log_(log) {}

  // Staging of sessions from now on.
  void add_staging(std::shared_ptr<Arena> arena);
  // Of that device; it lives as long as this.
  cluster::session::SliceMover& mover(const std::shared_ptr<device::Transfers>& transfers,
                                      const std::shared_ptr<device::Device>& device);

 private:
  struct Known {
    std::shared_ptr<device::Transfers> transfers;
    std::shared_ptr<device::Device> device;
    std::unique_ptr<SessionMover> mover;
  };
  void pin(const Known& known, const std::shared_ptr<Arena>& arena);

  Executor& work_;
  Executor& links_;
  const Log* const log_;
  Mutex mutex_;
  std::map<const device::Transfers*, Known> devices_ KVBM_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Arena>> staging_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager
