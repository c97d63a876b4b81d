// Log of a device until its owner ends: a thread that is left behind in the driver may still hold the device then.
// Thread: any; no lock is held while a line is written.
#pragma once

#include <initializer_list>
#include <string_view>

#include "base/telemetry/log.h"
#include "base/thread/gate.h"

namespace kvbm::device {

class DeviceLog {
 public:
  // `log`: may be null; outlives this until close() has returned.
  explicit DeviceLog(const Log* log) noexcept : log_(log) {}
  // Whether a line of this level is written: without one, none is put together, which takes memory.
  [[nodiscard]] bool wants(LogLevel level) noexcept;
  void write(LogLevel level, std::string_view text, std::initializer_list<LogField> fields = {});
  // Waits for the lines being written. No line is written from then on. Called once.
  void close() noexcept;

 private:
  const Log* const log_;  // used inside the gate only
  Gate gate_;
};

}  // namespace kvbm::device
