#include "manager/session/device_asks.h"

#include <utility>

#include "base/thread/memory_wait.h"

namespace kvbm::manager {

std::shared_ptr<DeviceAsks> DeviceAsks::create(std::shared_ptr<device::Device> device,
                                               std::shared_ptr<WeakExecutor> links) {
  std::shared_ptr<DeviceAsks> asks(new DeviceAsks(std::move(device), std::move(links)));
  asks->device_->watch().add([weak = std::weak_ptr(asks)](device::DriverWatch::Step step) {
    if (step != device::DriverWatch::Step::give_up) return;
    if (const auto self = weak.lock()) self->give_up();
  });
  return asks;
}

void DeviceAsks::ask(UniqueFunction<Memory()> call, Done done) {
  auto asked = std::make_shared<Done>(std::move(done));
  {
    MutexLock lock(mutex_);
    open_.push_back(asked);
  }
  device_->thread()->post([self = shared_from_this(), asked = std::move(asked), call = std::move(call)]() mutable {
    self->answer(*asked, call());
    MutexLock lock(self->mutex_);
    std::erase(self->open_, asked);
  });
}

void DeviceAsks::answer(Done& asked, Memory memory) {
  Done done;
  {
    MutexLock lock(mutex_);
    done = std::exchange(asked, {});
  }
  if (!done) return;  // memory that arrives late is released here
  links_->post([done = std::move(done), memory = std::move(memory)]() mutable { done(std::move(memory)); });
}

void DeviceAsks::give_up() {
  const MemoryWait no_error_path;
  std::vector<std::shared_ptr<Done>> open;
  {
    MutexLock lock(mutex_);
    open = open_;
  }
  for (const auto& asked : open) answer(*asked, device_->lost());
}

}  // namespace kvbm::manager
