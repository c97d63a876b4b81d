// Loads with layers that the device waits for, each with the landmark (fence) that shows its progress.
//
// Of one cache. A load stays listed after it has ended, until kKept later loads were added. So a late query for its
// layers learns that there is nothing to wait for. Thread: any. Lock: mutex_, a leaf.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>

#include "base/thread/mutex.h"

namespace kvbm::device {
class Landmark;
}

namespace kvbm::manager {

// One load. The landmark is at n when the n leading layers are in place, and at last() when the load has ended,
// failed or not.
struct LayerMarks {
  std::shared_ptr<device::Landmark> landmark;
  uint32_t first_layer = 0;
  uint32_t end_layer = 0;
  std::atomic<bool> ended{false};
  uint64_t operation = 0;  // number of the load, in LayerWaits
  [[nodiscard]] uint64_t value(uint32_t layer) const noexcept { return uint64_t{layer} - first_layer + 1; }
  [[nodiscard]] uint64_t last() const noexcept { return end_layer - first_layer; }
};

class LayerWaits {
 public:
  static constexpr size_t kKept = 1024;
  // List node for one load, allocated before the load is submitted, so that add() cannot fail.
  using Place = std::list<std::shared_ptr<LayerMarks>>;
  static Place place(std::shared_ptr<LayerMarks> marks);

  void add(uint64_t operation, Place place) noexcept;
  [[nodiscard]] std::shared_ptr<LayerMarks> find(uint64_t operation) const;

 private:
  mutable Mutex mutex_;
  Place loads_ KVBM_GUARDED_BY(mutex_);  // the latest first
};

}  // namespace kvbm::manager
