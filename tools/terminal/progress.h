// A progress bar on stderr: drawn when stderr is a terminal and the output is not JSON, silent otherwise. Used by one
// thread. advance() is cheap: it draws at most ten times a second.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace kvbm::terminal {

enum class Unit { items, bytes };

struct ProgressState {
  std::string label;
  uint64_t done = 0;
  uint64_t total = 0;  // 0: not known
  double seconds = 0;
  Unit unit = Unit::items;
};

// Returns a bar of `cells` cells, `share` (0 to 1) of them full.
std::string render_bar(double share, size_t cells, bool utf8);
// Returns one line without its end: label, bar, share, rate and the time left.
std::string render_progress(const ProgressState& state, bool utf8);

class Progress {
 public:
  Progress(std::string label, uint64_t total, Unit unit, bool quiet);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(uint64_t by) { set(state_.done + by); }
  void set(uint64_t done);
  // Draws the last state and ends the line; further calls do nothing.
  void finish();

 private:
  void draw(std::chrono::steady_clock::time_point now);

  ProgressState state_;
  bool shown_;
  bool utf8_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace kvbm::terminal
