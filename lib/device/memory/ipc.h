// Device memory shared between processes of one machine (CUDA IPC): a process's description of its memory, and another
// process's mapping of it.
//
// The driver names allocations and not pointers, so memory is described as the handle of its allocation and an offset.
// Only memory of cuMemAlloc (cudaMalloc) can be exported: memory of cuMemCreate (PyTorch's expandable segments) and of
// pools (cudaMallocAsync) has no such handle. A mapping can be written as well as read, so the owner exports only
// memory that it checks, or never reads again.
//
// A mapping lives while it is referenced. It stays mapped when the other process ends, or frees the memory: then it may
// hold any bytes, and only data checked against a hash may be trusted. Thread: any. Blocks: as the driver does, for
// milliseconds, when memory is mapped and unmapped.
// Lock: mutex_, held over those calls so that no handle is opened twice; no other lock is taken under it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "base/bytes.h"
#include "base/status.h"
#include "base/thread/mutex.h"
#include "device/context/device.h"

namespace kvbm::device {

// Description of memory for another process; valid while the memory is allocated.
struct IpcMemory {
  CuIpcHandle handle{};  // of the allocation
  CuUuid device{};       // the device of the memory
  uint64_t offset = 0;   // of the memory in the allocation
  uint64_t bytes = 0;
};

// Bytes of a message: handle 64, device 16, offset 8, bytes 8; little-endian.
inline constexpr size_t kIpcMemoryBytes = 96;
void encode(const IpcMemory& memory, std::byte* out) noexcept;
IpcMemory decode_ipc_memory(const std::byte* from) noexcept;

// Describes memory for export. invalid_argument: not memory of this device, or not all of one allocation. unsupported:
// memory of a kind that cannot be exported, or a system that exports none; the text says which. tier_disabled: the
// device is lost.
Result<IpcMemory> export_memory(Device& device, CuPointer pointer, uint64_t bytes);

class IpcMappings;

// Another process's memory at an address of this process's device.
class IpcMapping {
 public:
  ~IpcMapping();
  IpcMapping(const IpcMapping&) = delete;
  IpcMapping& operator=(const IpcMapping&) = delete;
  [[nodiscard]] CuPointer pointer() const noexcept { return pointer_; }
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }

 private:
  friend class IpcMappings;
  class Allocation;
  IpcMapping(std::shared_ptr<Allocation> allocation, CuPointer pointer, uint64_t bytes)
      : allocation_(std::move(allocation)), pointer_(pointer), bytes_(bytes) {}
  std::shared_ptr<Allocation> allocation_;
  CuPointer pointer_;
  uint64_t bytes_;
};

// Mappings of one device. An allocation is opened once, however many mappings lie in it, and closed with the last.
class IpcMappings {
 public:
  explicit IpcMappings(std::shared_ptr<Device> device);
  ~IpcMappings();
  IpcMappings(const IpcMappings&) = delete;
  IpcMappings& operator=(const IpcMappings&) = delete;

  // Maps memory of this device, or of one that it can reach. Errors: unsupported with the reason: another machine's or
  // container's handle, no path between the devices, or this process's own memory. invalid_argument (not inside its
  // allocation), stale_handle (not allocated any more), no_memory, tier_disabled.
  Result<std::shared_ptr<IpcMapping>> open(const IpcMemory& memory);
  // Returns the number of open allocations.
  [[nodiscard]] size_t allocations() const;

 private:
  friend class IpcMapping;
  using Key = std::array<char, sizeof(CuIpcHandle)>;
  struct Table;
  const std::shared_ptr<Table> table_;
};

}  // namespace kvbm::device
