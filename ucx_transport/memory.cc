#include "memory.h"

#include <cstring>

#include "status.h"

namespace kvbm::ucx {

Memory::~Memory() {
  for (const auto& [address, region] : regions_) (void)ucp_mem_unmap(context_, region.handle);
}

int32_t Memory::add(void* data, uint64_t bytes, uint64_t* memory, void* key, size_t* key_size) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_PROT;
  params.address = data;
  params.length = bytes;
  params.prot = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE | UCP_MEM_MAP_PROT_REMOTE_READ;
  ucp_mem_h handle = nullptr;
  if (const ucs_status_t status = ucp_mem_map(context_, &params, &handle); status != UCS_OK) return from_ucs(status);
  void* packed = nullptr;
  size_t size = 0;
  if (const ucs_status_t status = ucp_rkey_pack(context_, handle, &packed, &size); status != UCS_OK) {
    (void)ucp_mem_unmap(context_, handle);
    return from_ucs(status);
  }
  const KeyHead head{kKeyMagic, static_cast<uint32_t>(size), next_, reinterpret_cast<uint64_t>(data), bytes};
  const size_t needed = sizeof head + size;
  if (needed > *key_size || needed > KVBM_TRANSPORT_KEY_BYTES) {
    ucp_rkey_buffer_release(packed);
    (void)ucp_mem_unmap(context_, handle);
    *key_size = needed;
    return value(Code::no_room);
  }
  std::memcpy(key, &head, sizeof head);
  std::memcpy(static_cast<std::byte*>(key) + sizeof head, packed, size);
  ucp_rkey_buffer_release(packed);
  base_.emplace(next_, head.base);
  regions_.emplace(head.base, Region{next_, bytes, handle});
  *key_size = needed;
  *memory = next_++;
  return 0;
}

int32_t Memory::remove(uint64_t memory) {
  const auto known = base_.find(memory);
  if (known == base_.end()) return value(Code::stale_handle);
  auto [it, end] = regions_.equal_range(known->second);
  while (it != end && it->second.generation != memory) ++it;
  const ucp_mem_h handle = it->second.handle;
  regions_.erase(it);
  base_.erase(known);
  return from_ucs(ucp_mem_unmap(context_, handle));
}

ucp_mem_h Memory::covering(const void* data, uint64_t bytes) const {
  const auto address = reinterpret_cast<uint64_t>(data);
  auto it = regions_.upper_bound(address);
  while (it != regions_.begin()) {
    --it;
    if (address - it->first < it->second.bytes && bytes <= it->second.bytes - (address - it->first)) {
      return it->second.handle;
    }
    if (it->first + it->second.bytes <= address) break;  // regions of a pool do not nest
  }
  return nullptr;
}

}  // namespace kvbm::ucx
