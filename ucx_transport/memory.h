// Memory that UCX has registered: of the host, which peers may read by themselves, with the keys that name it; and of
// devices, which the CPU must not touch and hardware has to reach.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <map>

#include "wire.h"

namespace kvbm::ucx {

class Memory {
 public:
  // cards: the memory domains of network cards. emulated: memory of the host plays that of devices, and no card is asked.
  Memory(ucp_context_h context, uint64_t cards, bool emulated)
      : context_(context), cards_(cards), emulated_(emulated) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int32_t add(void* data, uint64_t bytes, uint64_t* memory, void* key, size_t* key_size);
  // Of a device: unsupported where UCX registers it with no network card. It says so in nothing but its key: registering
  // is for all domains that take such memory, and ends well where the cards' do not (no nvidia_peermem, no dma-buf).
  int32_t add_device(void* data, uint64_t bytes, uint64_t* memory);
  int32_t remove(uint64_t memory);
  // The registration that holds all of it, or NULL.
  ucp_mem_h covering(const void* data, uint64_t bytes) const;
  // Whether any of it is a device's.
  bool on_device(const void* data, uint64_t bytes) const;
  // What is told UCX of memory that is given to it: where it is registered, and what it is, which UCX would ask the CUDA
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
  size_t devices_ = 0;  // regions of them
  uint64_t next_ = 1;
  std::map<uint64_t, uint64_t> base_;        // generation -> address
  std::multimap<uint64_t, Region> regions_;  // by address
};

}  // namespace kvbm::ucx
