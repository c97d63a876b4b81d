// Memory registered with UCX: host memory, which peers may read by themselves, with the keys that name it; and device
// memory, which the CPU must not touch and hardware must reach.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <map>

#include "wire.h"

namespace kvbm::ucx {

class Memory {
 public:
  // cards: the memory domains of network cards. emulated: host memory stands for device memory, and no card is
  // checked.
  Memory(ucp_context_h context, uint64_t cards, bool emulated)
      : context_(context), cards_(cards), emulated_(emulated) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int32_t add(void* data, uint64_t bytes, uint64_t* memory, void* key, size_t* key_size);
  // Registers device memory. unsupported: UCX registers it with no network card. Only the key shows that:
  // registration covers all domains that accept such memory, and succeeds even if the cards' do not (no
  // nvidia_peermem, no dma-buf).
  int32_t add_device(void* data, uint64_t bytes, uint64_t* memory);
  int32_t remove(uint64_t memory);
  // Returns the registration that covers the whole range, or NULL.
  ucp_mem_h covering(const void* data, uint64_t bytes) const;
  // Returns true if any of the range is device memory.
  bool on_device(const void* data, uint64_t bytes) const;
  // Sets UCX's parameters for a range: its registration, and its memory type, which UCX would otherwise ask the CUDA
  // driver for on each call.
  void describe(const void* data, uint64_t bytes, bool knows_device_memory, ucp_request_param_t* param) const;

 private:
  struct Region {
    uint64_t generation = 0;
    uint64_t bytes = 0;
    ucp_mem_h handle = nullptr;
    bool device = false;
  };
  int32_t map(void* data, uint64_t bytes, ucs_memory_type_t type, ucp_mem_h* handle) const;
  void keep(uint64_t address, const Region& region);

  const ucp_context_h context_;
  const uint64_t cards_;
  const bool emulated_;
  size_t devices_ = 0;  // number of device regions
  uint64_t next_ = 1;
  std::map<uint64_t, uint64_t> base_;        // generation -> address
  std::multimap<uint64_t, Region> regions_;  // by address
};

}  // namespace kvbm::ucx
