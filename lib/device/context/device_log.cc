#include "device/context/device_log.h"

namespace kvbm::device {

bool DeviceLog::wants(LogLevel level) noexcept {
  if (log_ == nullptr || !gate_.enter()) return false;
  const bool wanted = log_->wants(level);
  gate_.leave();
  return wanted;
}

void DeviceLog::write(LogLevel level, std::string_view text, std::initializer_list<LogField> fields) {
  if (log_ == nullptr || !gate_.enter()) return;
  log_->write(level, "device", text, fields);
  gate_.leave();
}

void DeviceLog::close() noexcept { gate_.close(); }

}  // namespace kvbm::device
