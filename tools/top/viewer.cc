#include "top/viewer.h"

#include <algorithm>
#include <utility>

namespace kvbm::top {

namespace {

constexpr size_t kPageRows = 1024;
// The thread spends at most one part in this many of its time on frames.
constexpr double kLeastPause = 20;
// The first frame comes soon, so that a screen does not stay empty.
constexpr double kFirstSeconds = 0.2;

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

kvbm_manager_stats_t stats_of(kvbm_manager_t* manager) {
  kvbm_manager_stats_t stats{};
  stats.struct_size = sizeof stats;
  kvbm_manager_stats(manager, &stats);
  return stats;
}

double gb_per_s(uint64_t now, uint64_t before, double seconds) {
  return seconds > 0 ? static_cast<double>(now - std::min(now, before)) / seconds / 1e9 : 0;
}

}  // namespace

void Viewer::opened(kvbm_manager_t* manager) {
  if (manager == nullptr) return close();
  manager_ = manager;
  began_ = before_at_ = Clock::now();
  at_first_ = before_ = stats_of(manager);
  if (!options_.last_only) thread_ = std::thread([this] { watch(); });
}

void Viewer::progress(const replay::StoreProgress& so_far) {
  MutexLock lock(mutex_);
  so_far_ = so_far;
}

void Viewer::close() {
  if (manager_ == nullptr) return;
  ending_.store(true, std::memory_order_relaxed);
  {
    MutexLock lock(mutex_);
    closing_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  ending_.store(false, std::memory_order_relaxed);
  last_ = take(true);
  manager_ = nullptr;
}

void Viewer::watch() {
  double pause = std::min(options_.interval_seconds, kFirstSeconds);
  for (;;) {
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(pause));
    {
      MutexLock lock(mutex_);
      while (!closing_ && Clock::now() < until) wake_.wait_until(mutex_, until);
      if (closing_) return;
    }
    const auto start = Clock::now();
    const Frame frame = take(false);
    if (ending_.load(std::memory_order_relaxed)) {
      --frames_;  // this frame is not shown, and the last one takes its number
      return;
    }
    if (options_.show) options_.show(frame);
    const double cost = seconds_between(start, Clock::now());
    pause = std::max(options_.interval_seconds - cost, kLeastPause * cost);
  }
}

Frame Viewer::take(bool last) {
  Frame frame;
  frame.number = ++frames_;
  frame.last = last;
  {
    MutexLock lock(mutex_);
    frame.progress = so_far_;
  }
  frame.stats = stats_of(manager_);
  fill_rates(frame);
  scan(frame);
  return frame;
}

void Viewer::fill_rates(Frame& frame) {
  const auto now = Clock::now();
  const auto since = frame.last ? began_ : before_at_;
  const kvbm_manager_stats_t& before = frame.last ? at_first_ : before_;
  frame.seconds = seconds_between(began_, now);
  frame.rate_seconds = seconds_between(since, now);
  for (uint32_t t = 0; t < frame.stats.n_tiers; ++t) {
    frame.in_gb_per_s[t] = gb_per_s(frame.stats.tiers[t].store_bytes, before.tiers[t].store_bytes, frame.rate_seconds);
    frame.out_gb_per_s[t] = gb_per_s(frame.stats.tiers[t].load_bytes, before.tiers[t].load_bytes, frame.rate_seconds);
  }
  before_at_ = now;
  before_ = frame.stats;
}

void Viewer::scan(Frame& frame) {
  const auto start = Clock::now();
  Heat heat(options_.order, options_.rows);
  std::vector<kvbm_scan_row_t> rows(kPageRows);
  uint64_t cursor = 0;
  do {
    size_t n = 0;
    if (kvbm_manager_scan(manager_, &cursor, rows.data(), rows.size(), &n) != KVBM_OK) break;
    for (size_t i = 0; i < n; ++i) {
      heat.add(rows[i]);
      frame.scanned_rows[rows[i].tier] += 1;
    }
  } while (cursor != 0 && !ending_.load(std::memory_order_relaxed));
  frame.scanned_blocks = heat.blocks();
  frame.hottest = heat.hottest();
  frame.coldest = heat.coldest();
  frame.scan_seconds = seconds_between(start, Clock::now());
}

}  // namespace kvbm::top
