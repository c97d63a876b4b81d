#include "manager/device/layer_waits.h"

#include <iterator>
#include <utility>

namespace kvbm::manager {

LayerWaits::Place LayerWaits::place(std::shared_ptr<LayerMarks> marks) {
  Place one;
  one.push_back(std::move(marks));
  return one;
}

// Adds a load and drops the oldest one that has ended. Loads in progress stay, however many there are.
void LayerWaits::add(uint64_t operation, Place place) noexcept {
  place.front()->operation = operation;
  Place gone;
  MutexLock lock(mutex_);
  loads_.splice(loads_.begin(), place);
  if (loads_.size() <= kKept) return;
  for (auto one = std::prev(loads_.end()); one != loads_.begin(); --one) {
    if (!(*one)->ended.load(std::memory_order_acquire)) continue;
    gone.splice(gone.begin(), loads_, one);
    return;
  }
}

std::shared_ptr<LayerMarks> LayerWaits::find(uint64_t operation) const {
  MutexLock lock(mutex_);
  for (const auto& one : loads_) {
    if (one->operation == operation) return one;
  }
  return nullptr;
}

}  // namespace kvbm::manager
