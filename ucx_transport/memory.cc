#include "memory.h"

#include <cstring>

#include "device_memory.h"
#include "status.h"

namespace kvbm::ucx {

Memory::~Memory() {
  for (const auto& [address, region] : regions_) (void)ucp_mem_unmap(context_, region.handle);
}

int32_t Memory::map(void* data, uint64_t bytes, ucs_memory_type_t type, ucp_mem_h* handle) const {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_PROT |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = data;
  params.length = bytes;
  params.prot = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE | UCP_MEM_MAP_PROT_REMOTE_READ;
  params.memory_type = type;
  return from_ucs(ucp_mem_map(context_, &params, handle));
}

void Memory::keep(uint64_t address, const Region& region) {
  base_.emplace(region.generation, address);
  regions_.emplace(address, region);
  if (region.device) ++devices_;
}

int32_t Memory::add(void* data, uint64_t bytes, uint64_t* memory, void* key, size_t* key_size) {
  ucp_mem_h handle = nullptr;
  if (const int32_t refused = map(data, bytes, UCS_MEMORY_TYPE_HOST, &handle); refused != 0) return refused;
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
  keep(head.base, Region{next_, bytes, handle, false});
  *key_size = needed;
  *memory = next_++;
  return 0;
}

int32_t Memory::add_device(void* data, uint64_t bytes, uint64_t* memory) {
  ucp_mem_h handle = nullptr;
  const ucs_memory_type_t type = emulated_ ? UCS_MEMORY_TYPE_HOST : UCS_MEMORY_TYPE_CUDA;
  if (const int32_t refused = map(data, bytes, type, &handle); refused != 0) return refused;
  void* packed = nullptr;
  size_t size = 0;
  const ucs_status_t status = ucp_rkey_pack(context_, handle, &packed, &size);
  const bool reached = status == UCS_OK && (emulated_ || is_reached(packed, size, cards_));
  if (status == UCS_OK) ucp_rkey_buffer_release(packed);
  if (!reached) {
    (void)ucp_mem_unmap(context_, handle);
    return value(Code::unsupported);
  }
  keep(reinterpret_cast<uint64_t>(data), Region{next_, bytes, handle, true});
  *memory = next_++;
  return 0;
}

int32_t Memory::remove(uint64_t memory) {
  const auto known = base_.find(memory);
  if (known == base_.end()) return value(Code::stale_handle);
  auto [it, end] = regions_.equal_range(known->second);
  while (it != end && it->second.generation != memory) ++it;
  const ucp_mem_h handle = it->second.handle;
  if (it->second.device) --devices_;
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

bool Memory::on_device(const void* data, uint64_t bytes) const {
  if (devices_ == 0) return false;
  const auto address = reinterpret_cast<uint64_t>(data);
  // There are few regions, and those of hosts and devices do not overlap: a region that begins before the range's end
  // may reach into it.
  for (auto it = regions_.begin(); it != regions_.end() && it->first < address + bytes; ++it) {
    if (it->second.device && address < it->first + it->second.bytes) return true;
  }
  return false;
}

void Memory::describe(const void* data, uint64_t bytes, bool knows_device_memory, ucp_request_param_t* param) const {
  if (ucp_mem_h handle = covering(data, bytes); handle != nullptr) {
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param->memh = handle;
  }
  if (knows_device_memory) {
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param->memory_type = !emulated_ && on_device(data, bytes) ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
  }
}

}  // namespace kvbm::ucx
