// Calls that come when a stream of the engine has got somewhere. The points are asked every kEveryNs while there are any:
// a batch of a device's transfers would stand in the way of what others have to move meanwhile. They are asked on the
// device's own thread; of one that is lost meanwhile nothing is waited for.
//
// Thread: any; calls come on the executor's threads, under no lock. Blocks: no. Lock: mutex_, a leaf.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/executor.h"
#include "base/function.h"
#include "base/mutex.h"
#include "device/device.h"
#include "device/stream_point.h"

namespace kvbm::manager {

class StreamWaits : public std::enable_shared_from_this<StreamWaits> {
 public:
  static constexpr uint64_t kEveryNs = 50'000;

  // Outlived by the executor; timers hold it.
  static std::shared_ptr<StreamWaits> create(Executor& executor);
  // Calls once: with ok when the stream is there, with tier_disabled where the device is lost or the stream fails before.
  void wait(std::shared_ptr<device::Device> device, std::shared_ptr<device::StreamPoint> point,
            UniqueFunction<void(Code)> reached);
  // Nobody is called from now on.
  void close();

 private:
  struct Wait {
    std::shared_ptr<device::Device> device;
    std::shared_ptr<device::StreamPoint> point;
    UniqueFunction<void(Code)> reached;
    std::shared_ptr<std::atomic<int>> said;  // of the driver, once it was asked; kNothing before
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
