#include "manager/session/device_direct.h"

#include <utility>

#include "device/memory/direct_memory.h"
#include "manager/session/deferred_free.h"

namespace kvbm::manager {

using cluster::session::SharedMemory;

DeviceDirect::DeviceDirect(const std::shared_ptr<device::Device>& device, bool whatever_it_says,
                           std::shared_ptr<WeakExecutor> links)
    : whatever_it_says_(whatever_it_says), asks_(DeviceAsks::create(device, std::move(links))) {}

void DeviceDirect::make(uint64_t bytes, bool written, Done done) {
  const auto make = [device = asks_->device(), whatever = whatever_it_says_, bytes, written]() -> DeviceAsks::Memory {
    auto made = device::allocate_direct(device, bytes, written, whatever);
    if (!made.ok()) return made.status();
    SharedMemory memory;
    memory.data = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(made.value()->address()));
    memory.bytes = bytes;
    memory.keep = deferred_free(std::shared_ptr<device::DeviceMemory>(std::move(made).value()), device->thread());
    return memory;
  };
  asks_->ask(make, std::move(done));
}

}  // namespace kvbm::manager
