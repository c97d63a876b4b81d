// Classifies pointers, and owns memory of the device and of the host for a part of kvbm.
//
// The driver tells which device a pointer belongs to, once, when a cache is attached: a kernel that touches memory
// outside ends the engine's context with ours. Thread: any. Blocks: allocating may.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "device/context/device.h"

namespace kvbm::device {

enum class PointerKind : uint8_t {
  host,    // unknown to the driver
  pinned,  // host memory known to the driver: allocated or registered by any code of the process
  device,
  managed,  // moves between both
};
const char* pointer_kind_name(PointerKind kind) noexcept;

struct PointerFacts {
  PointerKind kind = PointerKind::host;
  int ordinal = -1;     // of the device that it was allocated or registered on
  CuPointer start = 0;  // of the mapping around the pointer; 0 if the driver does not tell
  uint64_t bytes = 0;
};

// Classifies a pointer. `driver` was initialised (by driver_library, or a device is open); no context is needed. If the
// driver refuses to answer, the pointer counts as host memory: only memory known to be the device's is treated so.
PointerFacts pointer_facts(const Driver& driver, const void* pointer);

// Returns how far device memory of this device reaches from `pointer` without a hole, up to `bytes`. It joins pieces
// that are mapped one after the other, because engines map their memory piece by piece.
uint64_t reach_of(const Driver& driver, const void* pointer, uint64_t bytes, int ordinal);

// Checks that kernels of `device` may use all of [pointer, pointer + bytes) as an engine's cache. invalid_argument,
// with the pointer, the device and the range in the text: host memory, pinned or not; memory of another device; managed
// memory; memory that ends before the extent does. `what` names the extent: "tensor 3 of part 0".
//
// Managed memory is refused: a kernel's access could start a migration on the engine's streams, its pages need not be
// on the device at all, and no engine keeps a KV cache there.
Status check_device_extent(const Device& device, const void* pointer, uint64_t bytes, const std::string& what);

// Device memory, not initialised.
class DeviceMemory {
 public:
  // Errors: no_memory, tier_disabled.
  static Result<std::unique_ptr<DeviceMemory>> allocate(std::shared_ptr<Device> device, uint64_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  [[nodiscard]] CuPointer address() const noexcept { return address_; }
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }

 private:
  DeviceMemory(std::shared_ptr<Device> device, uint64_t bytes) : device_(std::move(device)), bytes_(bytes) {}
  const std::shared_ptr<Device> device_;
  const uint64_t bytes_;
  CuPointer address_ = 0;  // 0: not allocated
};

// Host memory of our own, zero at first, known to the device. It is mapped by us and registered, not allocated by the
// driver. A device reset would unmap memory that the driver allocated, and the CPU would fault while it only wants to
// find out that the device is lost. Memory that the driver refuses to unregister stays mapped.
class PinnedMemory {
 public:
  // Errors: no_memory, not_permitted (the limit of locked memory), tier_disabled.
  static Result<std::unique_ptr<PinnedMemory>> allocate(std::shared_ptr<Device> device, uint64_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }
  // Returns the address at which the device sees this memory.
  [[nodiscard]] CuPointer device_pointer() const noexcept { return device_pointer_; }

 private:
  PinnedMemory(std::shared_ptr<Device> device, uint64_t bytes, uint64_t mapped)
      : device_(std::move(device)), bytes_(bytes), mapped_bytes_(mapped) {}
  const std::shared_ptr<Device> device_;
  const uint64_t bytes_;
  const uint64_t mapped_bytes_;
  std::byte* data_ = nullptr;  // null: not mapped
  CuPointer device_pointer_ = 0;
  bool registered_ = false;
};

}  // namespace kvbm::device
