// Memory of a device that two processes of one machine share for a session's payloads (CUDA IPC, device/memory/ipc.h),
// or two managers of one process, on one device (device/memory/own_memory.h).
//
// The prefill side allocates memory and sends its name; the decode side maps it. It is never an engine's tensors: a
// mapping can be written as well as read, and much of what engines allocate has no name. The message holds the memory
// and the machine's boot id, so that a name never reaches a driver of another machine. A mapping holds whatever the
// other process last wrote, also after that process ended, so the reader verifies it.
//
// Thread: any. The driver is called on the device's own thread (device_asks.h), also to free and unmap unused memory.
// Results arrive on the links' thread, and not at all once that is gone.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/thread/weak_executor.h"
#include "cluster/session/mover.h"
#include "device/context/device.h"
#include "device/memory/ipc.h"

namespace kvbm::manager {

class DeviceAsks;

class DeviceShare {
 public:
  using BootId = std::array<uint8_t, 16>;
  using Done = cluster::session::SliceMover::MemoryDone;

  // boot: of this machine; zero: nothing is shared.
  DeviceShare(std::shared_ptr<device::Device> device, const BootId& boot, std::shared_ptr<WeakExecutor> links);

  // Implements cluster/session/mover.h.
  [[nodiscard]] std::vector<std::byte> place() const;
  [[nodiscard]] Status near(ConstBytes place) const;
  void share(uint64_t bytes, Done done);
  void map(ConstBytes said, uint64_t bytes, Done done);

 private:
  const std::shared_ptr<device::Device> device_;
  const BootId boot_;
  const std::shared_ptr<DeviceAsks> asks_;
  const std::shared_ptr<device::IpcMappings> mappings_;  // shared with requests under way
};

}  // namespace kvbm::manager
