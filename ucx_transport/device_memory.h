// Whether memory of a CUDA device may be given to this transport (KVBM_TRANSPORT_DEVICE).
//
// UCX moves such memory in two ways. Hardware reads and writes it: a network card over PCIe (GPUDirect), another device of
// this host (CUDA IPC, which does not reach another host, and which sessions use without UCX). Or UCX copies it through host memory of its own, on the thread that drives it, and waits for the
// device there. The second is what kvbm's own staging does better: on streams, through memory that is pinned for good, with
// the leaf hash taken on the way. So only network cards are offered, and where there are none, callers stage.
//
// Nothing that UCX is asked says whether its cards take such memory: registering it ends well as soon as one memory domain
// takes it (CUDA's own does), and a transfer then goes the second way. The kernel's part is looked at when the context
// opens, and each registration's key is read for the cards themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kvbm::ucx {

// The bit of CUDA in ucp_context_attr_t.memory_types (UCS_MEMORY_TYPE_CUDA).
inline constexpr uint64_t kCudaMemory = 1U << 1;

// UCX was built with CUDA and has a driver: it can tell device memory from host memory, so what is given is never read as
// if it were the host's.
constexpr bool knows_device_memory(uint64_t memory_types) { return (memory_types & kCudaMemory) != 0; }

// UCX hands device memory to cards as dma-buf since then, where kernel, driver and card have it.
constexpr unsigned kDmaBufMajor = 1, kDmaBufMinor = 14;

constexpr bool uses_dma_buf(unsigned major, unsigned minor) {
  return major != kDmaBufMajor ? major > kDmaBufMajor : minor >= kDmaBufMinor;
}

// `rdma`: a network that reads by itself is among what was found. `kernel`: there is a way for its cards to such memory,
// has_peer_memory() or uses_dma_buf(); of the second only a registration says whether it is there (is_reached).
constexpr bool offers_device_memory(uint64_t memory_types, bool rdma, bool kernel) {
  return rdma && kernel && knows_device_memory(memory_types);
}

// Whether one of `cards` (a bit for each memory domain) holds the CUDA memory that a packed key of UCX is for. UCX writes the
// domains that hold it first (8 bytes), then the type of memory (1 byte): from 1.13 to 1.22, as other nodes read it. What
// does not look like that is not reached.
inline bool is_reached(const void* key, size_t size, uint64_t cards) {
  constexpr uint8_t kCudaType = 1;
  uint64_t domains = 0;
  if (size <= sizeof domains) return false;
  std::memcpy(&domains, key, sizeof domains);
  return static_cast<const uint8_t*>(key)[sizeof domains] == kCudaType && (domains & cards) != 0;
}

}  // namespace kvbm::ucx
