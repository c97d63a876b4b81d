#include "device/memory/ipc.h"

#include <cstring>
#include <string>

namespace kvbm::device {
namespace {

// Results and an attribute of the driver that only calls for shared device memory use.
constexpr CuResult kCuMapFailed = 205;
constexpr CuResult kCuAlreadyMapped = 208;
constexpr CuResult kCuPeerAccessUnsupported = 217;
constexpr CuResult kCuTooManyPeers = 711;
constexpr int kCuPointerIsIpcCapable = 10;  // CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE

constexpr char kNotExported[] =
    "memory of cuMemCreate (expandable segments) and of pools (cudaMallocAsync) has no handle; cudaMalloc's has";

std::string name_of(Device& device) { return "device " + std::to_string(device.facts().ordinal); }

// Names the device, and the cause of its loss.
Status lost(Device& device) {
  return {Code::tier_disabled, "the device is lost", name_of(device) + ", " + device.lost().detail()};
}

// Explains the driver's refusal to open a handle.
Status refused(Device& device, CuResult result) {
  const std::string where = name_of(device);
  switch (result) {
    case kCuPeerAccessUnsupported:
    case kCuTooManyPeers:
      return {Code::unsupported, "another process's device memory cannot be mapped",
              where + " cannot reach the device that it is of"};
    case kCuInvalidContext:
    case kCuAlreadyMapped:
      return {Code::unsupported, "another process's device memory cannot be mapped", "it is this process's own"};
    case kCuInvalidDevice:
      return {Code::unsupported, "another process's device memory cannot be mapped",
              "its device is not visible to this process"};
    case kCuInvalidValue:
    case kCuInvalidHandle:
      return {Code::stale_handle, "another process's device memory cannot be mapped",
              "it is not allocated any more, or is another machine's"};
    case kCuMapFailed:
    case kCuNotSupported:
      return {Code::unsupported, "another process's device memory cannot be mapped",
              "the system does not allow it (a container without a common /proc and IPC name space, or MIG)"};
    default:
      return device.check(result, "cuIpcOpenMemHandle");
  }
}

}  // namespace

void encode(const IpcMemory& memory, std::byte* out) noexcept {
  std::memcpy(out, memory.handle.reserved, 64);
  std::memcpy(out + 64, memory.device.bytes, 16);
  store_le<uint64_t>(out + 80, memory.offset);
  store_le<uint64_t>(out + 88, memory.bytes);
}

IpcMemory decode_ipc_memory(const std::byte* from) noexcept {
  IpcMemory memory;
  std::memcpy(memory.handle.reserved, from, 64);
  std::memcpy(memory.device.bytes, from + 64, 16);
  memory.offset = load_le<uint64_t>(from + 80);
  memory.bytes = load_le<uint64_t>(from + 88);
  return memory;
}

Result<IpcMemory> export_memory(Device& device, CuPointer pointer, uint64_t bytes) {
  if (device.is_lost()) return lost(device);
  const Device::Scope scope(device);
  if (!scope.entered()) return lost(device);
  const Driver& driver = device.driver();
  CuPointer start = 0;
  size_t size = 0;
  int ordinal = -1;
  if (driver.cuPointerGetAttribute(&start, kCuPointerRangeStart, pointer) != kCuSuccess ||
      driver.cuPointerGetAttribute(&size, kCuPointerRangeSize, pointer) != kCuSuccess ||
      driver.cuPointerGetAttribute(&ordinal, kCuPointerDeviceOrdinal, pointer) != kCuSuccess ||
      ordinal != device.facts().ordinal) {
    return Status(Code::invalid_argument, "memory cannot be exported", "it is not memory of " + name_of(device));
  }
  if (bytes == 0 || pointer < start || size < bytes || pointer - start > size - bytes) {
    return Status(Code::invalid_argument, "memory cannot be exported",
                  std::to_string(bytes) + " bytes go beyond an allocation of " + std::to_string(size));
  }
  int capable = 1;  // a driver that does not know the attribute refuses the handle instead
  if (driver.cuPointerGetAttribute(&capable, kCuPointerIsIpcCapable, pointer) == kCuSuccess && capable == 0) {
    return Status(Code::unsupported, "memory cannot be exported", kNotExported);
  }
  IpcMemory out;
  const CuResult result = driver.cuIpcGetMemHandle(&out.handle, pointer);
  if (result == kCuInvalidValue || result == kCuNotSupported) {
    return Status(Code::unsupported, "memory cannot be exported",
                  result == kCuInvalidValue ? kNotExported : "this system has no CUDA IPC");
  }
  if (Status s = device.check(result, "cuIpcGetMemHandle"); !s.ok()) return s;
  out.device = device.facts().uuid;
  out.offset = pointer - start;
  out.bytes = bytes;
  return out;
}

// ---- Mappings ----

// Shared by the mappings, which may outlive the IpcMappings that made them.
struct IpcMappings::Table {
  explicit Table(std::shared_ptr<Device> the_device) : device(std::move(the_device)) {}
  const std::shared_ptr<Device> device;
  Mutex mutex;
  std::map<Key, std::weak_ptr<IpcMapping::Allocation>> open KVBM_GUARDED_BY(mutex);
};

class IpcMapping::Allocation {
 public:
  Allocation(std::shared_ptr<IpcMappings::Table> table, const IpcMappings::Key& key)
      : table_(std::move(table)), key_(key) {}
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  [[nodiscard]] CuPointer base() const noexcept { return base_; }
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }
  // Closed by the destructor from now on. 0 bytes: not known.
  void opened(CuPointer base) noexcept { base_ = base; }
  void reaches(uint64_t bytes) noexcept { bytes_ = bytes; }
  // Closes the handle under the lock: it could be opened again meanwhile, and the driver gives the same address.
  ~Allocation() {
    MutexLock lock(table_->mutex);
    const auto known = table_->open.find(key_);
    if (known != table_->open.end() && known->second.expired()) table_->open.erase(known);
    if (base_ == 0) return;
    Device& device = *table_->device;
    const Device::Scope scope(device);
    // On a lost device nothing is left to be unmapped, and the driver's answer is known.
    if (scope.entered() && !device.is_lost()) {
      device.note(device.driver().cuIpcCloseMemHandle(base_), "cuIpcCloseMemHandle");
    }
  }

 private:
  const std::shared_ptr<IpcMappings::Table> table_;
  const IpcMappings::Key key_;
  CuPointer base_ = 0;  // 0: not open
  uint64_t bytes_ = 0;
};

IpcMapping::~IpcMapping() = default;

IpcMappings::IpcMappings(std::shared_ptr<Device> device) : table_(std::make_shared<Table>(std::move(device))) {}
IpcMappings::~IpcMappings() = default;

Result<std::shared_ptr<IpcMapping>> IpcMappings::open(const IpcMemory& memory) {
  Device& device = *table_->device;
  if (device.is_lost()) return lost(device);
  Key key;
  std::memcpy(key.data(), memory.handle.reserved, key.size());
  std::shared_ptr<IpcMapping::Allocation> allocation;  // dropped after the lock
  const auto place = [&]() -> Result<std::shared_ptr<IpcMapping>> {
    const uint64_t all = allocation->bytes();
    if (memory.bytes == 0 || memory.bytes > all || memory.offset > all - memory.bytes) {
      return Status(Code::invalid_argument, "another process's device memory cannot be mapped",
                    std::to_string(memory.bytes) + " bytes from " + std::to_string(memory.offset) +
                        " on, and its allocation has " + std::to_string(all));
    }
    const CuPointer at = allocation->base() + memory.offset;
    return std::shared_ptr<IpcMapping>(new IpcMapping(allocation, at, memory.bytes));
  };
  MutexLock lock(table_->mutex);
  if (const auto known = table_->open.find(key); known != table_->open.end()) allocation = known->second.lock();
  if (allocation != nullptr) return place();
  const Device::Scope scope(device);
  if (!scope.entered()) return lost(device);
  const Driver& driver = device.driver();
  // Allocate first: once a handle is open, an object must own it and close it.
  allocation = std::make_shared<IpcMapping::Allocation>(table_, key);
  std::weak_ptr<IpcMapping::Allocation>& known = table_->open[key];
  CuPointer base = 0;
  const CuResult opened = driver.cuIpcOpenMemHandle(&base, memory.handle, kCuIpcLazyPeerAccess);
  if (opened != kCuSuccess) return refused(device, opened);
  allocation->opened(base);
  // The driver, not the peer, tells the allocation's size.
  size_t size = 0;
  const CuResult asked = driver.cuPointerGetAttribute(&size, kCuPointerRangeSize, base);
  if (asked != kCuSuccess) return device.check(asked, "cuPointerGetAttribute");
  allocation->reaches(size);
  known = allocation;
  return place();
}

size_t IpcMappings::allocations() const {
  MutexLock lock(table_->mutex);
  return table_->open.size();
}

}  // namespace kvbm::device
