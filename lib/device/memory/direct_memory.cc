#include "device/memory/direct_memory.h"

#include <string>
#include <utility>

namespace kvbm::device {

namespace {

const char kNoDirect[] = "no network card reaches the device's memory";

std::string name_of(const Device& device) { return "device " + std::to_string(device.facts().ordinal); }

}  // namespace

Result<std::unique_ptr<DeviceMemory>> allocate_direct(const std::shared_ptr<Device>& device, uint64_t bytes,
                                                      bool written, bool whatever_it_says) {
  const DeviceFacts& facts = device->facts();
  if (!facts.cards_reach && !whatever_it_says) {
    return Status(Code::unsupported, kNoDirect, name_of(*device) + " has neither GPUDirect RDMA nor dma-buf");
  }
  if (written && !facts.cards_ordered && !facts.cards_flushed) {
    return Status(Code::unsupported, kNoDirect, name_of(*device) + " does not say when what was written can be read");
  }
  auto memory = DeviceMemory::allocate(device, bytes);
  if (!memory.ok()) return memory.status();
  const Device::Scope scope(*device);
  if (!scope.entered()) return Status(Code::tier_disabled, kLost, name_of(*device) + ", " + device->lost().detail());
  const unsigned on = 1;
  const CuResult set = device->driver().cuPointerSetAttribute(&on, kCuPointerSyncMemops, memory.value()->address());
  if (Status s = device->check(set, "cuPointerSetAttribute"); !s.ok()) return s;
  return memory;
}

Status settle_direct_writes(Device& device) {
  if (device.facts().cards_ordered) return {};
  const Device::Scope scope(device);
  if (!scope.entered()) return {Code::tier_disabled, kLost, name_of(device) + ", " + device.lost().detail()};
  return device.check(device.driver().cuFlushGPUDirectRDMAWrites(kCuFlushCurrent, kCuFlushToOwner),
                      "cuFlushGPUDirectRDMAWrites");
}

}  // namespace kvbm::device
