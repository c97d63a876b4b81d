// How a lane ends, and how it gives up a device.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/thread/memory_wait.h"
#include "device/driver/driver_thread.h"
#include "device/driver/driver_watch.h"
#include "device/driver/retained.h"
#include "device/transfer/transfer_lane.h"

namespace kvbm::device {

namespace {

// A stall takes this many looks in a row, so that work that begins to wait between two looks has most of the time left.
constexpr uint32_t kTicks = 4;
// Words that streams wait for are raised at this look, before the device is given up. A copy of the engine's behind
// such a wait may stand before ours in a queue of the hardware.
constexpr uint32_t kRaiseAtTick = 3;

}  // namespace

bool TransferLane::idle() const { return active_.empty() && waiting_.empty() && assigned_ == finished_ && !pumping_; }

TransferStats TransferLane::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

void TransferLane::abandon_both() {
  abandon();
  if (const std::shared_ptr<TransferLane> peer = peer_.lock()) peer->abandon();
}

void TransferLane::abandon() {
  std::deque<std::shared_ptr<TransferWork>> begun;  // dropped outside of the lock
  std::deque<std::shared_ptr<TransferWork>> not_begun;
  std::vector<std::shared_ptr<TransferWork>> off_device;
  MutexLock lock(mutex_);
  if (dead_) return;
  dead_ = true;
  closing_ = false;
  current_ = nullptr;
  begun.swap(active_);
  not_begun.swap(waiting_);
  for (uint64_t i = finished_; i < assigned_; ++i) {
    Place& place = at(i);
    // The driver has it, or a call is giving it: the ring refers to it until the device is proven quiet.
    if ((place.state == State::issued && !place.nothing) || place.state == State::issuing) continue;
    off_device.push_back(std::move(place.work));
  }
  for (const auto* works : {&begun, &not_begun}) {
    for (const std::shared_ptr<TransferWork>& work : *works) {
      if (work->batch.landmark != nullptr) landmarks_->end(*work->batch.landmark, work->last_value(), true);
      ++stats_.failed_batches;
      answer_lost(work);
    }
  }
  wake();
}

// Answers with an empty batch, because the issuing thread or the watcher may still read the batch itself.
void TransferLane::answer_lost(const std::shared_ptr<TransferWork>& work) {
  if (work->tasks > 0 || !work->batch.done) return;
  executor_.post([work, done = std::move(work->batch.done)]() mutable {
    TransferBatch none;
    done(none, Code::tier_disabled);
  });
}

void TransferLane::arm() {
  if (armed_ || dead_ || stall_ns_ == kNever) return;
  armed_ = true;
  executor_.post_at(deadline_after(executor_.clock(), stall_ns_ / kTicks), [weak = weak_from_this()] {
    const std::shared_ptr<TransferLane> self = weak.lock();
    if (self == nullptr) return;
    {
      MutexLock lock(self->mutex_);
      self->look_due_ = true;
    }
    self->pump();
  });
}

void TransferLane::look_again() {
  if (looking_ || dead_) return;
  looking_ = true;
  executor_.post_at(deadline_after(executor_.clock(), look_after_ns_), [weak = weak_from_this()] {
    const std::shared_ptr<TransferLane> self = weak.lock();
    if (self == nullptr) return;
    {
      MutexLock lock(self->mutex_);
      self->looking_ = false;
    }
    self->pump();
  });
  look_after_ns_ = std::min(2 * look_after_ns_, kLastLookNs);
}

void TransferLane::look_for_stall() {
  std::shared_ptr<TransferWork> oldest;
  uint32_t stuck = 0;
  {
    MutexLock lock(mutex_);
    armed_ = false;
    const bool away = landed_ != issued_ || closing_;
    if (dead_ || (!away && waiting_.empty())) return;
    arm();
    if (!away || landed_ != ticked_at_) {
      stuck_ticks_ = 0;
    } else {
      stuck = ++stuck_ticks_;
      oldest = landed_ != issued_ ? at(landed_).work : active_.front();
    }
    ticked_at_ = landed_;
  }
  if (oldest != nullptr && oldest->batch.after != nullptr) {
    const Device::Scope scope(*device_);
    if (!oldest->batch.after->reached()) {
      // The engine's stream is not there yet, so this is no stall of ours.
      MutexLock lock(mutex_);
      stuck_ticks_ = stuck = 0;
    }
  }
  if (stuck == kRaiseAtTick) landmarks_->release_waiters();
  if (stuck >= kTicks) device_->lose("a transfer had no end within device.lost_after", kCuSuccess);
  if (device_->is_lost()) abandon_both();
  // Otherwise the lane's thread goes on: a landmark that was dropped promises nothing any more.
}

void TransferLane::give_up() { abandon(); }

bool TransferLane::wait_until(std::chrono::steady_clock::time_point until) {
  std::unique_lock<std::mutex> lock(mutex_.native(), std::adopt_lock);
  const bool notified = changed_.wait_until(lock, until) == std::cv_status::no_timeout;
  lock.release();
  return notified;
}

void TransferLane::close() {
  using std::chrono::steady_clock;
  const uint64_t patience_ns = std::min<uint64_t>(stall_ns_, 3'600'000'000'000ULL);
  bool given_up = false;
  uint64_t leave_after_ns = kLeaveAfterNs;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake();
    while (!dead_ && !idle() && !given_up) {
      const uint64_t before = finished_;
      DriverCall::alive(patience_ns);  // a wait for others is no call that does not return
      const bool notified = wait_until(steady_clock::now() + std::chrono::nanoseconds(patience_ns));
      given_up = !notified && finished_ == before && stall_ns_ != kNever;
    }
    closed_ = true;
    if (!dead_ && !given_up) leave_after_ns = patience_ns;  // no call of the driver is known not to return
  }
  if (given_up) abandon();
  DriverCall::alive(3 * leave_after_ns);
  bool left = !has_run(*issuer_, leave_after_ns);
  bool watching = false;
  {
    MutexLock lock(mutex_);
    const auto until = steady_clock::now() + std::chrono::nanoseconds(leave_after_ns);
    bool notified = true;
    while ((watching_ || tasks_ > 0) && notified) notified = wait_until(until);
    watching = watching_;
    left = left || watching_ || tasks_ > 0 || !quiet_;
  }
  if (watching) {
    pthread_detach(thread_);
  } else {
    pthread_join(thread_, nullptr);
  }
  if (left) {
    retain_until_exit(shared_from_this());
  } else {
    // Ended here and not with the last reference, which may belong to a task of the executor: such tasks must not call
    // the driver.
    issue_.reset();
    staging_.reset();
    issuer_.reset();
  }
  DriverCall::alive();
}

}  // namespace kvbm::device
