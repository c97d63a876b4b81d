// Structured log messages through one callback; off until a callback is set. The callback runs on
// the thread that logs, under no lock of ours, and must not call back into the library. Nothing on
// a per-block path logs. Thread: any, but set_sink before anything else may log.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace kvbm {

enum class LogLevel : int { error = 0, warning = 1, info = 2, debug = 3, trace = 4 };

struct LogField {
  std::string_view key;
  std::string value;
};

struct LogMessage {
  LogLevel level;
  std::string_view component;
  std::string_view text;
  const LogField* fields;
  size_t n_fields;
};

class Log {
 public:
  using Sink = void (*)(void* user_data, const LogMessage& message);

  void set_sink(Sink sink, void* user_data, LogLevel most) noexcept {
    sink_ = sink;
    user_data_ = user_data;
    most_ = most;
  }
  [[nodiscard]] bool wants(LogLevel level) const noexcept { return sink_ != nullptr && level <= most_; }
  void write(LogLevel level, std::string_view component, std::string_view text,
             std::initializer_list<LogField> fields = {}) const {
    if (wants(level)) sink_(user_data_, LogMessage{level, component, text, fields.begin(), fields.size()});
  }

 private:
  Sink sink_ = nullptr;
  void* user_data_ = nullptr;
  LogLevel most_ = LogLevel::error;
};

}  // namespace kvbm
