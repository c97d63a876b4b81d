// How a lane ends, and how it gives a device up.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/memory_wait.h"
#include "device/parked.h"
#include "device/transfer_lane.h"

namespace kvbm::device {

namespace {

// A stall is found in so many looks, so that what begins to wait between two of them has most of the time left.
constexpr uint32_t kTicks = 4;
// How long close() waits for a watcher that is in the driver of a device given up; then it is left there.
constexpr auto kLeaveAfter = std::chrono::seconds(1);

}  // namespace

bool TransferLane::idle() const {
  return active_.empty() && waiting_.empty() && assigned_ == finished_ && !pumping_;
}

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
    // The driver has it, or is just being told: the ring refers to it until it is proven quiet.
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

// The batch itself may still be read by who issues or watches it: what is answered is an empty one.
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
    if (const std::shared_ptr<TransferLane> self = weak.lock()) self->tick();
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

void TransferLane::tick() {
  const MemoryWait patient;
  std::shared_ptr<TransferWork> oldest;
  bool stalled = false;
  {
    MutexLock lock(mutex_);
    armed_ = false;
    if (dead_ || (landed_ == issued_ && waiting_.empty())) return;
    arm();
    if (landed_ == issued_ || landed_ != ticked_at_) {
      stuck_ticks_ = 0;
    } else {
      stalled = ++stuck_ticks_ >= kTicks;
      oldest = at(landed_).work;
    }
    ticked_at_ = landed_;
  }
  if (oldest != nullptr && oldest->batch.after != nullptr) {
    const Device::Scope scope(*device_);
    if (!oldest->batch.after->reached()) {
      // The engine's stream is not there yet: that is no stall of ours.
      MutexLock lock(mutex_);
      stuck_ticks_ = 0;
      stalled = false;
    }
  }
  if (stalled) device_->lose("a transfer had no end within device.lost_after", kCuSuccess);
  if (device_->is_lost()) {
    abandon_both();
  } else {
    pump();  // a landmark that was dropped promises nothing any more
  }
}

void TransferLane::close() {
  const auto patience = std::chrono::nanoseconds(stall_ns_ == kNever ? 3'600'000'000'000ULL : stall_ns_);
  bool given_up = false;
  mutex_.lock();
  stopping_ = true;
  wake();
  while (!dead_ && !idle() && !given_up) {
    const uint64_t before = finished_;
    std::unique_lock<std::mutex> lock(mutex_.native(), std::adopt_lock);
    const bool told = changed_.wait_for(lock, patience) == std::cv_status::no_timeout;
    lock.release();
    given_up = !told && finished_ == before && stall_ns_ != kNever;
  }
  mutex_.unlock();
  if (given_up) abandon();
  mutex_.lock();
  bool left = false;
  while (watching_ && !left) {
    std::unique_lock<std::mutex> lock(mutex_.native(), std::adopt_lock);
    left = changed_.wait_for(lock, kLeaveAfter) == std::cv_status::timeout && watching_;
    lock.release();
  }
  const bool parked = left || !quiet_;
  mutex_.unlock();
  if (left) {
    pthread_detach(thread_);
  } else {
    pthread_join(thread_, nullptr);
  }
  if (parked) park(shared_from_this());
}

}  // namespace kvbm::device
