// Memory of a device that the transport of links reads and writes by itself for a session's payloads (GPUDirect RDMA,
// device/direct_memory.h). kvbm's own, never an engine's tensors: what a late transfer may still write belongs to nobody
// else. Made on `work`, where the driver takes its milliseconds; ends come on the links' thread, and not at all once that
// is gone. What nobody holds any more is freed on `work`, too. Thread: any.
#pragma once

#include <memory>

#include "base/executor.h"
#include "cluster/session/mover.h"
#include "device/device.h"
#include "manager/links_turn.h"

namespace kvbm::manager {

class DeviceDirect {
 public:
  using Done = cluster::session::SliceMover::MemoryDone;

  // whatever_it_says: tried also where the device says that cards do not reach it. `work` outlives this and what it gives.
  DeviceDirect(std::shared_ptr<device::Device> device, bool whatever_it_says, Executor& work,
               std::shared_ptr<LinksTurn> links);

  // cluster/session/mover.h.
  void make(uint64_t bytes, bool written, Done done);

 private:
  const std::shared_ptr<device::Device> device_;
  const bool whatever_it_says_;
  Executor& work_;
  const std::shared_ptr<LinksTurn> links_;
};

}  // namespace kvbm::manager
