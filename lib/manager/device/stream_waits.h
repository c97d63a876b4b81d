// Calls back when a stream of the engine has reached a point. The points are queried every kEveryNs while there are
// any, because a batch of a device's transfers would block the batches of other operations meanwhile. They are queried
// on the device's own thread; the loss of a device ends its waits.
//
// Thread: any; calls run on the executor's threads, under no lock. Blocks: no. Lock: mutex_, a leaf.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/function.h"
#include "base/thread/executor.h"
#include "base/thread/mutex.h"
#include "device/context/device.h"
#include "device/transfer/stream_point.h"

namespace kvbm::manager {

class StreamWaits : public std::enable_shared_from_this<StreamWaits> {
 public:
  static constexpr uint64_t kEveryNs = 50'000;

  // The executor outlives it; timers hold it.
  static std::shared_ptr<StreamWaits> create(Executor& executor);
  // Calls `reached` once: with ok when the stream is there, with tier_disabled if the device is lost or the stream
  // fails before.
  void wait(std::shared_ptr<device::Device> device, std::shared_ptr<device::StreamPoint> point,
            UniqueFunction<void(Code)> reached);
  // Drops all waits: none of them is called from now on.
  void close();

 private:
  struct Wait {
    std::shared_ptr<device::Device> device;
    std::shared_ptr<device::StreamPoint> point;
    UniqueFunction<void(Code)> reached;
    std::shared_ptr<std::atomic<int>> said;  // by the driver, once it was queried; kNothing before
  };
  static constexpr int kNothing = -1;
  explicit StreamWaits(Executor& executor) : executor_(executor) {}
  void arm() KVBM_REQUIRES(mutex_);
  void tick();
  static void ask(const Wait& wait);

  Executor& executor_;
  Mutex mutex_;
  std::vector<Wait> waits_ KVBM_GUARDED_BY(mutex_);
  bool armed_ KVBM_GUARDED_BY(mutex_) = false;
  bool closed_ KVBM_GUARDED_BY(mutex_) = false;
};

}  // namespace kvbm::manager
