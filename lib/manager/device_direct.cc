#include "manager/device_direct.h"

#include <utility>

#include "device/direct_memory.h"
#include "manager/kept_memory.h"

namespace kvbm::manager {

using cluster::session::SharedMemory;

DeviceDirect::DeviceDirect(std::shared_ptr<device::Device> device, bool whatever_it_says, Executor& work,
                           std::shared_ptr<LinksTurn> links)
    : device_(std::move(device)), whatever_it_says_(whatever_it_says), work_(work), links_(std::move(links)) {}

void DeviceDirect::make(uint64_t bytes, bool written, Done done) {
  work_.post([device = device_, whatever = whatever_it_says_, work = &work_, links = links_, bytes, written,
              done = std::move(done)]() mutable {
    auto made = device::allocate_direct(device, bytes, written, whatever);
    Result<SharedMemory> result = made.status();
    if (made.ok()) {
      SharedMemory memory;
      memory.data = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(made.value()->address()));
      memory.bytes = bytes;
      memory.keep = kept(std::shared_ptr<device::DeviceMemory>(std::move(made).value()), *work);
      result = std::move(memory);
    }
    links->post([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
  });
}

}  // namespace kvbm::manager
