#include "device/context/device_log.h"

#include <mutex>

namespace kvbm::device {

bool DeviceLog::wants(LogLevel level) noexcept {
  MutexLock lock(mutex_);
  return log_ != nullptr && log_->wants(level);
}

void DeviceLog::write(LogLevel level, std::string_view text, std::initializer_list<LogField> fields) {
  const Log* log = nullptr;
  {
    MutexLock lock(mutex_);
    if (log_ == nullptr) return;
    log = log_;
    ++writing_;
  }
  log->write(level, "device", text, fields);
  MutexLock lock(mutex_);
  if (--writing_ == 0) written_.notify_all();
}

void DeviceLog::close() noexcept {
  MutexLock lock(mutex_);
  log_ = nullptr;
  while (writing_ > 0) {
    std::unique_lock<std::mutex> native(mutex_.native(), std::adopt_lock);
    written_.wait(native);
    native.release();
  }
}

}  // namespace kvbm::device
