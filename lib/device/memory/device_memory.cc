#include "device/memory/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>

#include "device/driver/driver_error.h"

namespace kvbm::device {

namespace {

constexpr char kNotOfDevice[] = "not memory of the cache's device";
constexpr uint64_t kDevicePage = 4096;

// Reads an attribute. Attributes have 1 to 8 bytes, and the reference does not say how many a boolean has.
bool ask(const Driver& driver, CuPointer pointer, int attribute, uint64_t* value) {
  *value = 0;
  return driver.cuPointerGetAttribute(value, attribute, pointer) == kCuSuccess;
}

// Finds the mapping around a pointer: the piece, in a reserved range that is mapped piece by piece, else the
// allocation. Both are queried and intersected, because drivers report the mapping of an allocation differently.
void find_range(const Driver& driver, CuPointer pointer, PointerFacts* facts) {
  uint64_t start = 0, bytes = 0, mapping = 0, mapping_bytes = 0;
  if (!ask(driver, pointer, kCuPointerRangeStart, &start) || !ask(driver, pointer, kCuPointerRangeSize, &bytes)) return;
  uint64_t end = start + bytes;
  if (ask(driver, pointer, kCuPointerMappingStart, &mapping) &&
      ask(driver, pointer, kCuPointerMappingSize, &mapping_bytes) && mapping_bytes != 0 && mapping <= pointer &&
      pointer < mapping + mapping_bytes) {
    start = std::max(start, mapping);
    end = std::min(end, mapping + mapping_bytes);
  }
  if (pointer < start || pointer >= end) return;
  facts->start = start;
  facts->bytes = end - start;
}

std::string hex(CuPointer address) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", address);
  return text;
}

std::string range_text(CuPointer start, uint64_t bytes) { return "[" + hex(start) + ", " + hex(start + bytes) + ")"; }

std::string device_text(int ordinal) { return "device " + std::to_string(ordinal); }

}  // namespace

const char* pointer_kind_name(PointerKind kind) noexcept {
  switch (kind) {
    case PointerKind::host:
      return "host memory";
    case PointerKind::pinned:
      return "pinned host memory";
    case PointerKind::device:
      return "device memory";
    case PointerKind::managed:
      return "managed memory";
  }
  return "memory";
}

PointerFacts pointer_facts(const Driver& driver, const void* pointer) {
  PointerFacts facts;
  const CuPointer address = address_of(pointer);
  uint64_t type = 0, managed = 0, ordinal = 0;
  if (!ask(driver, address, kCuPointerMemoryType, &type)) return facts;
  if (ask(driver, address, kCuPointerIsManaged, &managed) && managed != 0) {
    facts.kind = PointerKind::managed;
  } else if (type == kCuMemoryDevice) {
    facts.kind = PointerKind::device;
  } else if (type == kCuMemoryHost) {
    facts.kind = PointerKind::pinned;
  } else {
    return facts;  // an array; engines give no address of one
  }
  if (ask(driver, address, kCuPointerDeviceOrdinal, &ordinal)) facts.ordinal = static_cast<int32_t>(ordinal);
  find_range(driver, address, &facts);
  return facts;
}

uint64_t reach_of(const Driver& driver, const void* pointer, uint64_t bytes, int ordinal) {
  const CuPointer begin = address_of(pointer);
  uint64_t reached = 0;
  while (reached < bytes) {
    const CuPointer at = begin + reached;
    const PointerFacts facts = pointer_facts(driver, reinterpret_cast<const void*>(static_cast<uintptr_t>(at)));
    if (facts.kind != PointerKind::device || facts.ordinal != ordinal || facts.bytes == 0) break;
    reached = facts.start + facts.bytes - begin;
  }
  return std::min(reached, bytes);
}

Status check_device_extent(const Device& device, const void* pointer, uint64_t bytes, const std::string& what) {
  const Driver& driver = device.driver();
  const int ours = device.facts().ordinal;
  const CuPointer address = address_of(pointer);
  const std::string range = what + ", " + range_text(address, bytes) + ", ";
  if (pointer == nullptr || bytes == 0 || address + bytes < address) {
    return {Code::invalid_argument, kNotOfDevice, range + "is no range of memory"};
  }
  const PointerFacts facts = pointer_facts(driver, pointer);
  if (facts.kind != PointerKind::device) {
    const char* reason = facts.kind == PointerKind::host ? ": the driver does not know it" : "";
    return {Code::invalid_argument, kNotOfDevice,
            range + "is " + pointer_kind_name(facts.kind) + reason + "; the cache is on " + device_text(ours)};
  }
  if (facts.ordinal != ours) {
    return {Code::invalid_argument, kNotOfDevice,
            range + "is on " + device_text(facts.ordinal) + "; the cache is on " + device_text(ours)};
  }
  const uint64_t reached = reach_of(driver, pointer, bytes, ours);
  if (reached < bytes) {
    return {Code::invalid_argument, kNotOfDevice,
            range + "ends outside: memory of " + device_text(ours) + " from " + hex(address) + " ends at " +
                hex(address + reached) + ", " + std::to_string(bytes - reached) + " bytes before it"};
  }
  return {};
}

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::allocate(std::shared_ptr<Device> device, uint64_t bytes) {
  std::unique_ptr<DeviceMemory> memory(new DeviceMemory(device, bytes));
  const Device::Scope scope(*device);
  if (!scope.entered()) return device->lost();
  CuPointer address = 0;
  if (Status s = device->check(device->driver().cuMemAlloc(&address, bytes), "cuMemAlloc"); !s.ok()) {
    if (s.code() != Code::no_memory) return s;
    return Status{s.code(), "no memory of the device", std::to_string(bytes) + " bytes: " + s.message()};
  }
  memory->address_ = address;
  return memory;
}

// Frees nothing if the device is lost, because its memory is lost too.
DeviceMemory::~DeviceMemory() {
  if (address_ == 0) return;
  const Device::Scope scope(*device_);
  if (scope.entered()) device_->note(device_->driver().cuMemFree(address_), "cuMemFree");
}

Result<std::unique_ptr<PinnedMemory>> PinnedMemory::allocate(std::shared_ptr<Device> device, uint64_t bytes) {
  const uint64_t mapped = round_up(std::max<uint64_t>(bytes, 1), kDevicePage);
  std::unique_ptr<PinnedMemory> memory(new PinnedMemory(device, bytes, mapped));
  void* const data = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return Status{Code::no_memory, "no host memory to pin"};
  memory->data_ = static_cast<std::byte*>(data);
  // A forked child must not share pages that a device writes.
  (void)::madvise(data, mapped, MADV_DONTFORK);
  const Device::Scope scope(*device);
  if (!scope.entered()) return device->lost();
  const Driver& driver = device->driver();
  const CuResult result = driver.cuMemHostRegister(data, mapped, kCuHostPortable | kCuHostDeviceMap);
  if (Status s = device->check(result, "cuMemHostRegister"); !s.ok()) return s;
  memory->registered_ = true;
  const CuResult found = driver.cuMemHostGetDevicePointer(&memory->device_pointer_, data, 0);
  if (Status s = device->check(found, "cuMemHostGetDevicePointer"); !s.ok()) return s;
  return memory;
}

PinnedMemory::~PinnedMemory() {
  if (registered_) {
    const Device::Scope scope(*device_);
    const CuResult result = scope.entered() ? device_->driver().cuMemHostUnregister(data_) : kCuSuccess;
    device_->note(result, "cuMemHostUnregister");
    // Stays mapped: a new mapping at this address could not be registered, as the driver still has it registered.
    if (result != kCuSuccess) return;
  }
  if (data_ != nullptr) ::munmap(data_, mapped_bytes_);
}

}  // namespace kvbm::device
