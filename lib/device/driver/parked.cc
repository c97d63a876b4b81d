#include "device/driver/parked.h"

#include <utility>
#include <vector>

#include "base/thread/mutex.h"

namespace kvbm::device {

namespace {

struct Parked {
  Mutex mutex;
  std::vector<std::shared_ptr<void>> all KVBM_GUARDED_BY(mutex);
};

// Never destroyed, because the device does not know when the process begins to end.
Parked& parked() {
  static Parked* const parked = new Parked;
  return *parked;
}

}  // namespace

void park(std::shared_ptr<void> what) {
  Parked& p = parked();
  MutexLock lock(p.mutex);
  p.all.push_back(std::move(what));
}

size_t parked_count() {
  Parked& p = parked();
  MutexLock lock(p.mutex);
  return p.all.size();
}

}  // namespace kvbm::device
