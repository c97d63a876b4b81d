// The watcher of a lane, and how parts and batches end.
#include <utility>

#include "base/thread/memory_wait.h"
#include "device/transfer/transfer_lane.h"

namespace kvbm::device {

void* TransferLane::entry(void* self) {
  const std::unique_ptr<std::shared_ptr<TransferLane>> lane(static_cast<std::shared_ptr<TransferLane>*>(self));
  (*lane)->watch();
  return nullptr;
}

void TransferLane::watch() {
  const MemoryWait patient;
  // Not Device::Scope, because issued work is also waited for on a device that was given up.
  const ContextScope scope(device_->driver(), device_->context());
  mutex_.lock();
  for (;;) {
    if (landed_ < issued_) {
      Place& place = at(landed_);
      mutex_.unlock();
      const bool landed = land(place);
      if (landed) pump();
      mutex_.lock();
      if (!landed) break;
    } else if ((dead_ && !pumping_) || (stopping_ && idle())) {
      break;
    } else if (must_close()) {
      closing_ = true;
      arm();
      mutex_.unlock();
      close_failed();
      pump();
      mutex_.lock();
    } else {
      std::unique_lock<std::mutex> lock(mutex_.native(), std::adopt_lock);
      changed_.wait(lock);
      lock.release();
    }
  }
  watching_ = false;
  wake();
  mutex_.unlock();
}

// Waits for the oldest part; returns false when it cannot be waited for.
bool TransferLane::land(Place& place) {
  uint64_t ns = 0;
  if (!place.nothing) {
    // If the device was lost before the end of a part was recorded, the event stands for an earlier part, or for
    // nothing.
    const bool marked = !(place.failed && device_->is_lost());
    const CuResult result = marked ? device_->driver().cuEventSynchronize(place.memory->end) : kCuSuccess;
    if (!marked || result != kCuSuccess) {
      // No call can tell any more when the device has finished with the memory.
      if (marked) device_->lose("cuEventSynchronize behind a transfer", result);
      {
        MutexLock lock(mutex_);
        quiet_ = false;
      }
      abandon_both();
      return false;
    }
    if (!place.failed) {
      ns = device_ns(*place.memory);
      issue_->collect(*place.work, part_of(place), *place.memory);
    }
  }
  std::shared_ptr<TransferWork> given_up;  // dropped outside of the lock
  {
    MutexLock lock(mutex_);
    if (dead_) {
      ++landed_;
      given_up = std::move(place.work);
    } else {
      landed(place, ns);
    }
  }
  // A value that the device wrote late may have lowered the word.
  if (given_up != nullptr && given_up->batch.landmark != nullptr) landmarks_->settle(*given_up->batch.landmark);
  return true;
}

uint64_t TransferLane::device_ns(const StagingPlace& place) {
  float ms = 0;
  const CuResult result = device_->driver().cuEventElapsedTime(&ms, place.begin, place.end);
  return result == kCuSuccess && ms > 0 ? static_cast<uint64_t>(static_cast<double>(ms) * 1e6) : 0;
}

void TransferLane::landed(Place& place, uint64_t device_ns) {
  TransferWork& work = *place.work;
  const PlannedPart& part = part_of(place);
  ++landed_;
  stats_.device_ns += device_ns;
  place.state = State::finished;
  if (!place.nothing && !place.failed) {
    work.landed_leaves = part.first + part.count;
    if (direction_ == Direction::gather && part.bounced && work.code == Code::ok) {
      place.state = State::finishing;
      post_task(place);
    }
  }
  advance();
}

// Removes finished parts from the ring, and ends batches that have left it whole.
void TransferLane::advance() {
  while (finished_ < landed_ && at(finished_).state == State::finished) {
    Place& place = at(finished_++);
    ++place.work->finished;
    place.work.reset();  // not the last reference: it is active
    place.state = State::free;
  }
  while (!active_.empty()) {
    const TransferWork& work = *active_.front();
    const bool failed = work.code != Code::ok;
    if (work.finished < work.assigned || work.tasks > 0) break;
    if (failed ? !work.closed : work.assigned < work.plan.parts.size()) break;
    if (current_ == active_.front()) current_ = nullptr;
    std::shared_ptr<TransferWork> over = std::move(active_.front());
    active_.pop_front();
    end(std::move(over));
  }
  if (must_close() || idle()) wake();
}

bool TransferLane::must_close() const {
  if (dead_ || active_.empty()) return false;
  const TransferWork& work = *active_.front();
  return work.code != Code::ok && !work.closed && work.finished == work.assigned && work.tasks == 0;
}

// Cleans up behind a batch that failed: no stream of the engine may wait for ever, and none may read pages that did not
// land. No work of the lane is on the device now, and none is issued before closing_ ends.
void TransferLane::close_failed() {
  std::shared_ptr<TransferWork> work;
  {
    MutexLock lock(mutex_);
    if (dead_) return;
    work = active_.front();
  }
  if (work->batch.landmark != nullptr && !work->reach.empty()) {
    // If even that is refused the landmark is raised all the same, and `done` reports the failure.
    (void)issue_->poison(*work, *ring_[0].memory, staging_->part_leaves());
  }
  if (device_->is_lost()) {
    {
      // A kernel that overwrites pages may still run: no call tells any more when it has ended.
      MutexLock lock(mutex_);
      quiet_ = false;
    }
    abandon_both();
    return;
  }
  MutexLock lock(mutex_);
  closing_ = false;
  work->closed = true;
  advance();
}

void TransferLane::end(std::shared_ptr<TransferWork> work) {
  if (work->batch.landmark != nullptr) {
    // A stream was let past a wait before the awaited leaves were there: it must not see success.
    if (work->code == Code::ok && landmarks_->was_released(*work->batch.landmark)) work->code = Code::deadline;
    landmarks_->end(*work->batch.landmark, work->last_value(), work->code != Code::ok);
  }
  count(*work);
  executor_.post([work = std::move(work)] {
    UniqueFunction<void(TransferBatch&, Code)> done = std::move(work->batch.done);
    if (done) done(work->batch, work->code);
  });
}

void TransferLane::count(const TransferWork& work) {
  if (work.code != Code::ok) {
    ++stats_.failed_batches;
    return;
  }
  work.count(stats_);
}

}  // namespace kvbm::device
