#include "manager/stream_waits.h"

#include <utility>

namespace kvbm::manager {

std::shared_ptr<StreamWaits> StreamWaits::create(Executor& executor) {
  return std::shared_ptr<StreamWaits>(new StreamWaits(executor));
}

void StreamWaits::wait(std::shared_ptr<device::Device> device, std::shared_ptr<device::StreamPoint> point,
                       UniqueFunction<void(Code)> reached) {
  MutexLock lock(mutex_);
  if (closed_) return;
  waits_.push_back({std::move(device), std::move(point), std::move(reached)});
  arm();
}

void StreamWaits::close() {
  std::vector<Wait> dropped;
  MutexLock lock(mutex_);
  closed_ = true;
  dropped.swap(waits_);
}

void StreamWaits::arm() {
  if (armed_ || waits_.empty()) return;
  armed_ = true;
  executor_.post_at(executor_.clock().now_ns() + kEveryNs, [self = shared_from_this()] { self->tick(); });
}

void StreamWaits::tick() {
  std::vector<Wait> now;
  {
    MutexLock lock(mutex_);
    now.swap(waits_);
  }
  std::vector<Wait> later;
  for (Wait& wait : now) {
    device::CuResult said = device::kCuContextDestroyed;
    if (!wait.device->is_lost()) {
      const device::Device::Scope scope(*wait.device);
      if (scope.entered()) said = wait.point->query();
    }
    if (said == device::kCuNotReady) {
      later.push_back(std::move(wait));
    } else {
      wait.reached(said == device::kCuSuccess ? Code::ok : Code::tier_disabled);
    }
  }
  std::vector<Wait> dropped;
  MutexLock lock(mutex_);
  armed_ = false;
  if (closed_) {
    dropped.swap(later);
    return;
  }
  for (Wait& wait : later) waits_.push_back(std::move(wait));
  arm();
}

}  // namespace kvbm::manager
