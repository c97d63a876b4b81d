// Device memory that a network card reads and writes by itself (GPUDirect RDMA).
//
// Facts relied on (CUDA 13.0, driver API, and NVIDIA's "GPUDirect RDMA"):
//   - The device tells whether cards can access it at all (DeviceFacts: nvidia_p2p_get_pages or dma-buf). The transport
//     tells whether a card of this machine does, when the memory is registered with it. add_device_memory looks for the
//     card in what UCX registered, because UCX itself accepts memory that no card reaches.
//   - A card reads correctly what a finished kernel wrote: a kernel that has ended, with its event seen, has its writes
//     in memory. SYNC_MEMOPS keeps the driver's own copies of that memory from ending before they have.
//   - Kernels launched afterwards see what a card has written, if the device orders such writes (WRITES_ORDERING: owner
//     or more). Otherwise they see it only after cuFlushGPUDirectRDMAWrites, which such devices must offer.
// A leaf that was read too early does not have its hash, so a mistake in any of this costs time and nothing else.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "device/context/device.h"
#include "device/memory/device_memory.h"

namespace kvbm::device {

// Allocates memory for a card's transfers; `written`: the card writes there, too. unsupported: the device cannot do it
// (with whatever_it_says: only that kernels could not see the writes); no_memory; tier_disabled.
Result<std::unique_ptr<DeviceMemory>> allocate_direct(const std::shared_ptr<Device>& device, uint64_t bytes,
                                                      bool written, bool whatever_it_says);

// Makes the writes of cards visible to kernels launched from now on. Blocks for some microseconds if the device needs
// it, else does nothing. Thread: any.
Status settle_direct_writes(Device& device);

}  // namespace kvbm::device
