// Inspects a manager while a replay uses it, and makes a frame of its state once an interval.
//
// A separate thread starts when the manager is opened. A scan is paged, so that other work can continue between two
// pages. However large the store, inspecting takes at most a twentieth of the thread's time: after an inspection of s
// seconds the next one is at least 20 s later.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <optional>
#include <thread>

#include "base/thread/mutex.h"
#include "kvbm.h"
#include "replay/store_replay.h"
#include "top/heat.h"

namespace kvbm::top {

struct Frame {
  uint64_t number = 0;  // from 1
  bool last = false;
  double seconds = 0;  // since the manager was opened
  replay::StoreProgress progress;
  kvbm_manager_stats_t stats{};
  // Of the interval before this frame; in the first and the last frame, of the whole run until then.
  double rate_seconds = 0;
  double in_gb_per_s[8] = {};   // by tier: stored bytes
  double out_gb_per_s[8] = {};  // loaded bytes
  uint64_t scanned_blocks = 0;
  uint64_t scanned_rows[8] = {};  // by tier
  double scan_seconds = 0;
  std::vector<Block> hottest;
  std::vector<Block> coldest;
};

class Viewer {
 public:
  struct Options {
    double interval_seconds = 1;
    bool last_only = false;
    size_t rows = 10;
    Order order = Order::uses;
    // Called for every frame but the last, on the viewer's thread.
    std::function<void(const Frame&)> show;
  };

  explicit Viewer(Options options) : options_(std::move(options)) {}
  ~Viewer() { close(); }
  Viewer(const Viewer&) = delete;
  Viewer& operator=(const Viewer&) = delete;

  // Implements StoreOptions::opened. Begins with a manager; with null takes the last frame and ends.
  void opened(kvbm_manager_t* manager);
  // Implements StoreOptions::progress. Thread: any.
  void progress(const replay::StoreProgress& so_far);
  // Returns the last frame, once there is one. Must not be called while the manager is open.
  [[nodiscard]] const std::optional<Frame>& last() const noexcept { return last_; }

 private:
  using Clock = std::chrono::steady_clock;

  void close();
  void watch();
  Frame take(bool last);
  void fill_rates(Frame& frame);
  void scan(Frame& frame);

  const Options options_;
  kvbm_manager_t* manager_ = nullptr;
  Clock::time_point began_;
  Clock::time_point before_at_;      // time of `before_`
  kvbm_manager_stats_t before_{};    // of the frame before
  kvbm_manager_stats_t at_first_{};  // when the manager was opened
  uint64_t frames_ = 0;
  std::optional<Frame> last_;
  std::thread thread_;
  std::atomic<bool> ending_{false};  // an unneeded scan stops at its next page
  Mutex mutex_;
  std::condition_variable_any wake_;
  bool closing_ KVBM_GUARDED_BY(mutex_) = false;
  replay::StoreProgress so_far_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::top
