// Log of a device until its owner ends: a thread that is left behind in the driver may still hold the device then.
// Thread: any. Lock: mutex_, a leaf; not held while a line is written.
#pragma once

#include <condition_variable>
#include <initializer_list>
#include <string_view>

#include "base/telemetry/log.h"
#include "base/thread/mutex.h"

namespace kvbm::device {

class DeviceLog {
 public:
  // `log`: may be null; outlives this until close() has returned.
  explicit DeviceLog(const Log* log) noexcept : log_(log) {}
  // Whether a line of this level is written: without one, none is put together, which takes memory.
  [[nodiscard]] bool wants(LogLevel level) noexcept;
  void write(LogLevel level, std::string_view text, std::initializer_list<LogField> fields = {});
  // Waits for the lines being written. No line is written from then on.
  void close() noexcept;

 private:
  Mutex mutex_;
  std::condition_variable written_;
  const Log* log_ KVBM_GUARDED_BY(mutex_);
  size_t writing_ KVBM_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvbm::device
