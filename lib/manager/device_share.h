// Memory of a device that two processes of one machine share for a session's payloads (CUDA IPC, device/ipc.h), or two
// managers of one process, on one device (device/own_memory.h).
//
// The prefill side makes memory of its own and says its name; the decode side maps it. Never an engine's tensors: a
// mapping can be written as well as read, and much of what engines allocate has no name. What is said is the machine's
// boot id, so that a name never reaches a driver that it does not come from, and the memory. What a mapping holds is
// whatever the other process put there last, also after its end: who reads it checks it.
//
// Thread: any. The driver is called on the device's own thread (device_asks.h); ends come on the links' thread, and not at
// all once that is gone. What nobody holds any more is freed and unmapped on the device's thread, too.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "cluster/session/mover.h"
#include "device/device.h"
#include "device/ipc.h"
#include "manager/links_turn.h"

namespace kvbm::manager {

class DeviceShare {
 public:
  using BootId = std::array<uint8_t, 16>;
  using Done = cluster::session::SliceMover::MemoryDone;

  // boot: of this machine; zero: nothing is shared.
  DeviceShare(std::shared_ptr<device::Device> device, const BootId& boot, std::shared_ptr<LinksTurn> links);

  // cluster/session/mover.h.
  [[nodiscard]] std::vector<std::byte> place() const;
  [[nodiscard]] Status near(ConstBytes place) const;
  void share(uint64_t bytes, Done done);
  void map(ConstBytes said, uint64_t bytes, Done done);

 private:
  struct Core;
  const std::shared_ptr<Core> core_;
};

}  // namespace kvbm::manager
