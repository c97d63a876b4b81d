// Collects log messages, one line each, with their fields.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/telemetry/log.h"

namespace kvbm::test {

class LogLines {
 public:
  void attach(Log& log) { log.set_sink(&LogLines::take, this, LogLevel::info); }
  [[nodiscard]] size_t count() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lines_.size();
  }
  [[nodiscard]] std::string line(size_t i) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return i < lines_.size() ? lines_[i] : "";
  }

 private:
  static void take(void* self, const LogMessage& message) {
    auto* lines = static_cast<LogLines*>(self);
    std::string text(message.text);
    for (size_t i = 0; i < message.n_fields; ++i) {
      text += " " + std::string(message.fields[i].key) + "=" + message.fields[i].value;
    }
    const std::lock_guard<std::mutex> lock(lines->mutex_);
    lines->lines_.push_back(std::move(text));
  }
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace kvbm::test
