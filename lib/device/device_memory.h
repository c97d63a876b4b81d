// What a pointer is, and memory of the device's and of the host's that a part of kvbm owns.
//
// Which device a pointer belongs to is the driver's to tell, once, when a cache is attached: a kernel that touches memory
// outside ends the engine's context with ours. Thread: any. Blocks: allocating may.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "device/device.h"

namespace kvbm::device {

enum class PointerKind : uint8_t {
  host,     // the driver does not know it
  pinned,   // host memory that the driver knows: allocated or registered by anybody in the process
  device,
  managed,  // moves between both
};
const char* pointer_kind_name(PointerKind kind) noexcept;

struct PointerFacts {
  PointerKind kind = PointerKind::host;
  int ordinal = -1;      // of the device that it was allocated or registered on
  CuPointer start = 0;   // of what is mapped around the pointer; 0 where the driver does not tell
  uint64_t bytes = 0;
};

// `driver` is begun (driver_library, or a device is open); no context is needed. A driver that refuses to tell anything
// makes it host memory: only what is known to be device memory is taken for it.
PointerFacts pointer_facts(const Driver& driver, const void* pointer);

// How far device memory reaches from `pointer` without a hole, up to `bytes`: over all pieces that are mapped one after
// the other (engines map their memory piece by piece), all of this device.
uint64_t reach_of(const Driver& driver, const void* pointer, uint64_t bytes, int ordinal);

// Whether kernels of `device` may use all of [pointer, pointer + bytes) as an engine's cache. invalid_argument, with the
// pointer, the device and the range in the text: host memory, pinned or not; memory of another device; managed memory;
// memory that ends before the extent does. `what` names it: "tensor 3 of part 0".
//
// Managed memory is refused: a kernel's access could start a migration on the engine's streams, its pages need not be on
// the device at all, and no engine keeps a KV cache there.
Status check_device_extent(const Device& device, const void* pointer, uint64_t bytes, const std::string& what);

// From the lowest to one past the highest byte that a run touches, which may begin below `data` (negative strides).
// invalid_argument: nothing at all, or it wraps around the address space.
struct Extent {
  const std::byte* start = nullptr;
  uint64_t bytes = 0;
};
Result<Extent> extent_of(const StridedRun& run);

// Device memory. Its bytes are whatever was there before.
class DeviceMemory {
 public:
  // no_memory, tier_disabled.
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

// Host memory of our own, zero at first, known to the device. Mapped by us and registered, not allocated by the driver:
// what the driver allocated is unmapped when somebody resets the device, and the CPU would fault where it only wants to
// find out that the device is lost. What the driver refuses to forget stays mapped.
class PinnedMemory {
 public:
  // no_memory; not_permitted (the limit of locked memory); tier_disabled.
  static Result<std::unique_ptr<PinnedMemory>> allocate(std::shared_ptr<Device> device, uint64_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }
  // The device's address of it.
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
