#include "device/driver/retained.h"

#include <utility>
#include <vector>

#include "base/thread/mutex.h"

namespace kvbm::device {

namespace {

struct Retained {
  Mutex mutex;
  std::vector<std::shared_ptr<void>> all KVBM_GUARDED_BY(mutex);
};

// Never destroyed, because the device does not know when the process begins to end.
Retained& retained() {
  static Retained* const retained = new Retained;
  return *retained;
}

}  // namespace

void retain_until_exit(std::shared_ptr<void> what) {
  Retained& p = retained();
  MutexLock lock(p.mutex);
  p.all.push_back(std::move(what));
}

size_t retained_count() {
  Retained& p = retained();
  MutexLock lock(p.mutex);
  return p.all.size();
}

}  // namespace kvbm::device
