#include "manager/device/stream_waits.h"

#include <utility>

#include "base/thread/memory_wait.h"

namespace kvbm::manager {

std::shared_ptr<StreamWaits> StreamWaits::create(Executor& executor) {
  return std::shared_ptr<StreamWaits>(new StreamWaits(executor));
}

void StreamWaits::wait(std::shared_ptr<device::Device> device, std::shared_ptr<device::StreamPoint> point,
                       UniqueFunction<void(Code)> reached) {
  MutexLock lock(mutex_);
  if (closed_) return;
  waits_.push_back(
      {std::move(device), std::move(point), std::move(reached), std::make_shared<std::atomic<int>>(kNothing)});
  ask(waits_.back());
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

void StreamWaits::ask(const Wait& wait) {
  const MemoryWait patient;
  wait.said->store(kNothing, std::memory_order_relaxed);
  wait.device->thread()->post([device = wait.device, point = wait.point, said = wait.said] {
    device::CuResult result = device::kCuContextDestroyed;
    const device::Device::Scope scope(*device);
    if (scope.entered()) result = point->query();
    said->store(result, std::memory_order_relaxed);
  });
}

void StreamWaits::tick() {
  std::vector<Wait> now;
  {
    MutexLock lock(mutex_);
    now.swap(waits_);
  }
  std::vector<Wait> later;
  for (Wait& wait : now) {
    int said = wait.said->load(std::memory_order_relaxed);
    if (wait.device->is_lost()) said = device::kCuContextDestroyed;
    if (said == device::kCuNotReady) ask(wait);
    if (said == device::kCuNotReady || said == kNothing) {
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
