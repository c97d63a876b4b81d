#include "device/context/device_log.h"

namespace kvbm::device {

void DeviceLog::leave() {
  if (calls_.leave()) written_.give(true);
}

bool DeviceLog::wants(LogLevel level) noexcept {
  if (log_ == nullptr || !calls_.enter()) return false;
  const bool wanted = log_->wants(level);
  leave();
  return wanted;
}

void DeviceLog::write(LogLevel level, std::string_view text, std::initializer_list<LogField> fields) {
  if (log_ == nullptr || !calls_.enter()) return;
  log_->write(level, "device", text, fields);
  leave();
}

void DeviceLog::close() noexcept {
  if (!calls_.close()) written_.wait();
}

}  // namespace kvbm::device
