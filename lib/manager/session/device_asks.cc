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
  auto ask = std::make_shared<Ask>(Ask{std::move(done)});
  {
    MutexLock lock(mutex_);
    open_.push_back(ask);
  }
  device_->thread()->post([self = shared_from_this(), ask = std::move(ask), call = std::move(call)]() mutable {
    self->answer(*ask, call());
    MutexLock lock(self->mutex_);
    std::erase(self->open_, ask);
  });
}

void DeviceAsks::answer(Ask& ask, Memory memory) {
  Done done;
  {
    MutexLock lock(mutex_);
    done = std::exchange(ask.done, {});
  }
  if (!done) return;  // memory that arrives late is released here
  links_->post([done = std::move(done), memory = std::move(memory)]() mutable { done(std::move(memory)); });
}

void DeviceAsks::give_up() {
  const MemoryWait no_error_path;
  std::vector<std::shared_ptr<Ask>> open;
  {
    MutexLock lock(mutex_);
    open = open_;
  }
  for (const auto& ask : open) answer(*ask, device_->lost());
}

}  // namespace kvbm::manager
