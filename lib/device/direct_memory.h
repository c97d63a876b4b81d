// Device memory that a network card reads and writes by itself (GPUDirect RDMA).
//
// What is relied on (CUDA 13.0, driver API, and NVIDIA's "GPUDirect RDMA"):
//   - Whether cards can at all the device says (DeviceFacts: nvidia_p2p_get_pages or dma-buf). Whether a card of this machine
//     does, the transport says when the memory is registered with it (add_device_memory, which looks for the card in what
//     UCX registered: UCX itself is content without one).
//   - What a card has read of a finished kernel's writes is right: a kernel that has ended, and whose event was seen, has
//     its writes in memory. SYNC_MEMOPS keeps the driver's own copies of that memory from ending before they have.
//   - What a card has written is seen by kernels that are launched afterwards, where the device orders such writes
//     (WRITES_ORDERING: owner or more); elsewhere only after cuFlushGPUDirectRDMAWrites, which those devices must offer.
// A leaf that was read before it was there does not have its hash, so a mistake in any of this costs time and nothing else.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "device/device.h"
#include "device/device_memory.h"

namespace kvbm::device {

// Memory for transfers that a card makes; `written`: it writes there, too. unsupported: the device says that it cannot be
// (whatever_it_says: only that kernels could not see what is written); no_memory; tier_disabled.
Result<std::unique_ptr<DeviceMemory>> allocate_direct(const std::shared_ptr<Device>& device, uint64_t bytes, bool written,
                                                      bool whatever_it_says);

// What cards have written is seen by kernels launched from now on. Blocks for some microseconds where the device needs it,
// else it does nothing. Thread: any.
Status settle_direct_writes(Device& device);

}  // namespace kvbm::device
