// Decides whether memory of a CUDA device may be given to this transport (KVBM_TRANSPORT_DEVICE).
//
// UCX moves such memory in two ways. Hardware reads and writes it: a network card over PCIe (GPUDirect), or another
// device of this host (CUDA IPC, which does not reach another host, and which sessions use without UCX). Or UCX
// copies it through host memory of its own, on the thread that drives it, and waits for the device there. kvbm's own
// staging does the latter better: on streams, through memory that stays pinned, and with the leaf hash computed on
// the way. So only network cards are offered, and without them callers stage.
//
// UCX does not report whether its cards accept such memory: registration succeeds as soon as one memory domain
// accepts it (CUDA's own does), and a transfer then takes the second way. So the kernel's support is checked when the
// context opens, and each registration's key is searched for the cards themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kvbm::ucx {

// CUDA's bit in ucp_context_attr_t.memory_types (UCS_MEMORY_TYPE_CUDA).
inline constexpr uint64_t kCudaMemory = 1U << 1;

// Returns true if UCX was built with CUDA and has a driver: it can tell device memory from host memory, so device
// memory is never read as if it were the host's.
constexpr bool knows_device_memory(uint64_t memory_types) { return (memory_types & kCudaMemory) != 0; }

// First version in which UCX passes device memory to cards as dma-buf, if kernel, driver and card support it.
constexpr unsigned kDmaBufMajor = 1, kDmaBufMinor = 14;

constexpr bool uses_dma_buf(unsigned major, unsigned minor) {
  return major != kDmaBufMajor ? major > kDmaBufMajor : minor >= kDmaBufMinor;
}

// `rdma`: a network with cards that read by themselves was found. `kernel`: its cards can access such memory by
// has_peer_memory() or uses_dma_buf(); for the latter only a registration shows whether it works (is_reached).
constexpr bool offers_device_memory(uint64_t memory_types, bool rdma, bool kernel) {
  return rdma && kernel && knows_device_memory(memory_types);
}

// Returns true if one of `cards` (a bit for each memory domain) holds the CUDA memory of a packed UCX key. UCX writes
// the domains that hold it first (8 bytes), then the type of memory (1 byte): from 1.13 to 1.22, as other nodes read
// it. A key of another form counts as not reached.
inline bool is_reached(const void* key, size_t size, uint64_t cards) {
  constexpr uint8_t kCudaType = 1;
  uint64_t domains = 0;
  if (size <= sizeof domains) return false;
  std::memcpy(&domains, key, sizeof domains);
  return static_cast<const uint8_t*>(key)[sizeof domains] == kCudaType && (domains & cards) != 0;
}

}  // namespace kvbm::ucx
