// Whether memory of a CUDA device may be given to this transport (KVBM_TRANSPORT_DEVICE).
//
// UCX moves such memory in two ways. Hardware reads and writes it: a network card over PCIe (GPUDirect), another device of
// this host (CUDA IPC, which does not reach another host, and which sessions use without UCX). Or UCX copies it through host memory of its own, on the thread that drives it, and waits for the
// device there. The second is what kvbm's own staging does better: on streams, through memory that is pinned for good, with
// the leaf hash taken on the way. So only network cards are offered, and where there are none, callers stage.
#pragma once

#include <cstdint>

namespace kvbm::ucx {

// The bit of CUDA in ucp_context_attr_t.memory_types (UCS_MEMORY_TYPE_CUDA).
inline constexpr uint64_t kCudaMemory = 1U << 1;

// UCX was built with CUDA and has a driver: it can tell device memory from host memory, so what is given is never read as
// if it were the host's.
constexpr bool knows_device_memory(uint64_t memory_types) { return (memory_types & kCudaMemory) != 0; }

// `rdma`: a network that reads by itself is among what was found; its cards move device memory where the kernel lets
// them (nvidia_peermem, dma-buf), and registering says no where it does not.
constexpr bool offers_device_memory(uint64_t memory_types, bool rdma) {
  return rdma && knows_device_memory(memory_types);
}

}  // namespace kvbm::ucx
