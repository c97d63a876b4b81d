// Whether something comes as soon as is promised, on a machine that may be busy with other things.
//
// A witness in the same process does a little work at fixed times and knows how long it was kept from that: on a
// machine with time for it, not at all. It also reads how long anything on the machine has waited for a processor or a
// disk (/proc/pressure, where that is). A sample is judged only if neither is more than a tenth of what is promised
// while it was taken: what was late all the same was late of its own accord. The median of the judged ones has to keep
// the promise; where fewer than kEnough could be judged that is printed, and nothing else. A witness is a thread: it is
// made after processes were forked, and for a sample or many.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace kvbm::test {

class Witness {
 public:
  using Clock = std::chrono::steady_clock;

  Witness() : thread_([this] { run(); }) {}
  ~Witness() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  // Returns the longest time for which the witness was kept from running, among waits that ended after `begin` or still
  // last. If tasks of the machine waited longer in total, returns that time.
  [[nodiscard]] Clock::duration kept_waiting_since(Clock::time_point begin) const {
    const Clock::duration waited = all_waiting();
    const std::lock_guard lock(mutex_);
    Clock::duration worst = Clock::now() - due_;
    Clock::duration before = first_waited_;
    for (auto late = late_.rbegin(); late != late_.rend(); ++late) {
      if (late->ended < begin) {
        before = late->all_waited;
        break;
      }
      worst = std::max(worst, late->by);
    }
    return std::max(worst, waited - before);
  }

 private:
  static constexpr std::chrono::milliseconds kEvery{5};
  static constexpr std::chrono::microseconds kWork{500};
  struct Late {
    Clock::time_point ended;
    Clock::duration by;
    Clock::duration all_waited;
  };

  // Returns the time since the machine's start during which some task waited for a processor or a disk.
  static Clock::duration all_waiting() {
    uint64_t microseconds = 0;
    for (const char* path : {"/proc/pressure/cpu", "/proc/pressure/io"}) {
      std::ifstream file(path);
      std::string some;
      if (!std::getline(file, some)) continue;
      if (const size_t at = some.find("total="); at != std::string::npos) {
        microseconds += std::strtoull(some.c_str() + at + std::strlen("total="), nullptr, 10);
      }
    }
    return std::chrono::microseconds(microseconds);
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      due_ = Clock::now() + kEvery;
      (void)changed_.wait_until(lock, due_, [this] { return stopping_; });
      lock.unlock();
      // A sleeping thread is scheduled at once, even if running ones are not.
      const auto begun = Clock::now();
      auto now = begun;
      while (now - begun < kWork) now = Clock::now();
      const auto waited = all_waiting();
      lock.lock();
      late_.push_back({now, now - due_ - kWork, waited});
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  Clock::time_point due_ = Clock::now() + kEvery;
  const Clock::duration first_waited_ = all_waiting();
  std::vector<Late> late_;  // one each kEvery: a test's worth
  std::thread thread_;
};

class Promise {
 public:
  Promise(std::string what, std::chrono::milliseconds within) : what_(std::move(what)), within_(within) {}

  // Takes a sample: the time from `begun` until now. It counts only if the machine was idle enough meanwhile, which
  // `witness`, started before `begun`, has measured.
  void came(const Witness& witness, Witness::Clock::time_point begun) {
    const auto took = Witness::Clock::now() - begun;
    ++samples_;
    if (witness.kept_waiting_since(begun) < within_ / 10) judged_.push_back(took);
  }

  void expect_kept() {
    const auto ms = [](Witness::Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
    if (judged_.size() < kEnough) {
      std::printf("%s: %zu of %zu could be judged, the machine was busy\n", what_.c_str(), judged_.size(), samples_);
      return;
    }
    std::sort(judged_.begin(), judged_.end());
    const auto median = judged_[judged_.size() / 2];
    std::printf("%s: median %.1f ms, longest %.1f ms of the %zu of %zu that could be judged, %lld ms are promised\n",
                what_.c_str(), ms(median), ms(judged_.back()), judged_.size(), samples_,
                static_cast<long long>(within_.count()));
    EXPECT_LE(median, within_) << what_;
  }

 private:
  static constexpr size_t kEnough = 3;

  const std::string what_;
  const std::chrono::milliseconds within_;
  std::vector<Witness::Clock::duration> judged_;
  size_t samples_ = 0;
};

}  // namespace kvbm::test
