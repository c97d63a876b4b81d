// Memory that peers may read by themselves, and the keys that name it.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <map>

#include "wire.h"

namespace kvbm::ucx {

class Memory {
 public:
  explicit Memory(ucp_context_h context) : context_(context) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int32_t add(void* data, uint64_t bytes, uint64_t* memory, void* key, size_t* key_size);
  int32_t remove(uint64_t memory);
  // The registration that holds all of it, or NULL.
  ucp_mem_h covering(const void* data, uint64_t bytes) const;

 private:
  struct Region {
    uint64_t generation = 0;
    uint64_t bytes = 0;
    ucp_mem_h handle = nullptr;
  };
  const ucp_context_h context_;
  uint64_t next_ = 1;
  std::map<uint64_t, uint64_t> base_;        // generation -> address
  std::multimap<uint64_t, Region> regions_;  // by address
};

}  // namespace kvbm::ucx
