#include "terminal/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "terminal/quantity.h"
#include "terminal/table.h"

namespace kvbm::terminal {

namespace {

constexpr size_t kBarCells = 24;
constexpr auto kInterval = std::chrono::milliseconds(100);

std::string amount(double value, Unit unit) {
  return unit == Unit::bytes ? format_binary_size(value) : format_count(static_cast<uint64_t>(value));
}

}  // namespace

std::string render_bar(double share, size_t cells, bool utf8) {
  const auto full = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(cells));
  std::string bar;
  for (size_t i = 0; i < cells; ++i) bar += i < full ? (utf8 ? "█" : "#") : (utf8 ? "░" : ".");
  return bar;
}

std::string render_progress(const ProgressState& state, bool utf8) {
  std::string line = state.label;
  line += ' ';
  const double rate = state.seconds > 0 ? static_cast<double>(state.done) / state.seconds : 0;
  if (state.total > 0) {
    const double share = std::min(1.0, static_cast<double>(state.done) / static_cast<double>(state.total));
    line += '[' + render_bar(share, kBarCells, utf8) + "] ";
    line += std::to_string(static_cast<int>(share * 100));
    line += "%  ";
  }
  line += amount(static_cast<double>(state.done), state.unit);
  if (rate > 0) {
    line += "  ";
    line += amount(rate, state.unit);
    line += "/s";
  }
  if (rate > 0 && state.total > state.done) {
    line += "  ";
    line += format_duration(static_cast<double>(state.total - state.done) / rate);
    line += " left";
  }
  return line;
}

Progress::Progress(std::string label, uint64_t total, Unit unit, bool quiet)
    : state_{std::move(label), 0, total, 0, unit},
      shown_(!quiet && ::isatty(STDERR_FILENO) == 1),
      utf8_(locale_is_utf8()),
      start_(std::chrono::steady_clock::now()),
      next_(start_) {}

void Progress::set(uint64_t done) {
  state_.done = done;
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now >= next_) draw(now);
}

void Progress::finish() {
  if (!shown_) return;
  draw(std::chrono::steady_clock::now());
  std::fputc('\n', stderr);
  shown_ = false;
}

void Progress::draw(std::chrono::steady_clock::time_point now) {
  state_.seconds = std::chrono::duration<double>(now - start_).count();
  std::fprintf(stderr, "\r\033[K%s", render_progress(state_, utf8_).c_str());
  std::fflush(stderr);
  next_ = now + kInterval;
}

}  // namespace kvbm::terminal
