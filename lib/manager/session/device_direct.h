// Memory of a device that the transport of links reads and writes by itself for a session's payloads (GPUDirect RDMA,
// device/memory/direct_memory.h). It is kvbm's own, never an engine's tensors, because a late transfer may still write
// to it. It is allocated, and freed after its last use, on the device's own thread. Results arrive on the links'
// thread, and not at all once that is gone. Thread: any.
#pragma once

#include <memory>

#include "base/thread/weak_executor.h"
#include "cluster/session/mover.h"
#include "device/context/device.h"
#include "manager/session/device_asks.h"

namespace kvbm::manager {

class DeviceDirect {
 public:
  using Done = cluster::session::SliceMover::MemoryDone;

  // `whatever_it_says`: tries to register memory even if the device reports that network cards cannot reach it.
  DeviceDirect(const std::shared_ptr<device::Device>& device, bool whatever_it_says,
               std::shared_ptr<WeakExecutor> links);

  // Implements cluster/session/mover.h.
  void make(uint64_t bytes, bool written, Done done);

 private:
  const bool whatever_it_says_;
  const std::shared_ptr<DeviceAsks> asks_;
};

}  // namespace kvbm::manager
