#include "device/transfer/transfer_lane.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/thread/memory_wait.h"
#include "base/thread/thread_executor.h"
#include "codec/hash/leaf_hash.h"
#include "device/driver/driver_thread.h"

namespace kvbm::device {

Result<std::shared_ptr<TransferLane>> TransferLane::create(Direction direction, std::shared_ptr<Device> device,
                                                           std::shared_ptr<LandmarkPool> landmarks,
                                                           const TransferOptions& options, size_t places,
                                                           size_t part_leaves, Executor& executor) {
  std::shared_ptr<TransferLane> lane(new TransferLane(direction, device, std::move(landmarks), options, executor));
  Result<std::unique_ptr<Staging>> staging = Staging::create(device, places, static_cast<uint32_t>(options.part_bytes),
                                                             part_leaves, !options.plan.always_mapped);
  if (!staging.ok()) return staging.status();
  lane->staging_ = std::move(staging.value());
  lane->issue_ = std::make_unique<PartIssue>(*device, direction, lane->staging_->streams(), options.multiprocessors);
  Result<std::shared_ptr<Executor>> issuer =
      start_driver_thread(direction == Direction::gather ? "gather" : "scatter", kLeaveAfterNs);
  if (!issuer.ok()) return issuer.status();
  lane->issuer_ = std::move(issuer).value();
  lane->ring_.resize(places);
  for (size_t i = 0; i < places; ++i) lane->ring_[i].memory = &lane->staging_->place(i);
  {
    MutexLock lock(lane->mutex_);
    lane->watching_ = true;
  }
  // Reference of the thread itself, which may have to be left behind in the driver.
  auto* const self = new std::shared_ptr<TransferLane>(lane);
  const char* const name = direction == Direction::gather ? "kvbm-gather" : "kvbm-scatter";
  if (Status s = start_thread(lane->thread_, name, &TransferLane::entry, self); !s.ok()) {
    delete self;
    return s;
  }
  return lane;
}

TransferLane::~TransferLane() = default;

void TransferLane::submit(std::shared_ptr<TransferWork> work) {
  const MemoryWait patient;
  {
    MutexLock lock(mutex_);
    if (work->batch.landmark != nullptr) landmarks_->begin(*work->batch.landmark);
    if (dead_ || stopping_) {
      if (work->batch.landmark != nullptr) landmarks_->end(*work->batch.landmark, work->last_value(), true);
      answer_lost(work);
      return;
    }
    if (work->code == Code::ok && work->plan.parts.empty()) {
      end(std::move(work));
      return;
    }
    waiting_.push_back(std::move(work));
  }
  pump();
}

void TransferLane::pump() {
  {
    MutexLock lock(mutex_);
    if (pumping_ || dead_ || closed_) return;
    pumping_ = true;
  }
  const MemoryWait patient;
  issuer_->post([self = shared_from_this()] { self->issue_all(); });
}

void TransferLane::issue_all() {
  const Device::Scope scope(*device_);
  if (!scope.entered()) device_->lose("making the device's context current", kCuInvalidContext);
  if (device_->is_lost()) abandon_both();
  for (bool asked = false;;) {
    Place* bare = nullptr;
    Place* place = nullptr;
    std::shared_ptr<TransferWork> of_bare;
    std::vector<std::shared_ptr<TransferWork>> to_ask;
    bool look = false;
    {
      MutexLock lock(mutex_);
      look = std::exchange(look_due_, false);
      if (!look) assign();
      if (!look) bare = next_bare();
      if (bare != nullptr) of_bare = bare->work;
      place = bare == nullptr && !look ? next_to_issue() : nullptr;
      if (bare == nullptr && place == nullptr && !look && !asked) to_ask = unsure();
      if (bare == nullptr && place == nullptr && !look && to_ask.empty()) {
        pumping_ = false;
        wake();
        return;
      }
    }
    asked = !to_ask.empty();
    if (look) {
      look_for_stall();
    } else if (bare != nullptr) {
      give_memory(*bare, of_bare);
    } else if (asked) {
      ask_points(to_ask);
    } else {
      issue(*place);
    }
  }
}

std::vector<std::shared_ptr<TransferWork>> TransferLane::unsure() const {
  std::vector<std::shared_ptr<TransferWork>> out;
  std::copy_if(waiting_.begin(), waiting_.end(), std::back_inserter(out),
               [](const auto& work) { return work->perhaps_behind && !work->point_reached; });
  return out;
}

void TransferLane::ask_points(const std::vector<std::shared_ptr<TransferWork>>& works) {
  for (const std::shared_ptr<TransferWork>& work : works) {
    if (!work->batch.after->reached()) continue;
    MutexLock lock(mutex_);
    work->point_reached = true;
  }
}

// Returns whether the batch must wait for a landmark. A point on another stream may lie behind the waiting stream's
// wait by an event of the engine's. The driver tells only whether the point was reached, so that is queried: a load of
// a stream that waits for nothing proceeds, however long the landmark takes.
bool TransferLane::stands_behind_a_landmark(TransferWork& work) {
  const TransferBatch& batch = work.batch;
  if (direction_ != Direction::scatter || batch.after == nullptr) return false;
  work.perhaps_behind = false;
  for (const LandmarkNeed& need : batch.after->needs()) {
    if (need.identity == batch.landmark.get() || landmarks_->met(need)) continue;
    if (need.certain) return true;
    work.perhaps_behind = true;
  }
  if (!work.perhaps_behind || work.point_reached) return false;
  look_again();
  return true;
}

// Returns the first batch that is not held. A batch is held while its point lies behind a wait for a landmark that is
// not promised yet: on our streams it would block the batch that raises it. Batches of one landmark, or of one point
// and so of one caller, keep their order.
std::shared_ptr<TransferWork> TransferLane::next_batch() {
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const TransferBatch& batch = waiting_[i]->batch;
    bool held = stands_behind_a_landmark(*waiting_[i]);
    for (size_t j = 0; j < i && !held; ++j) {
      const TransferBatch& before = waiting_[j]->batch;
      held = (batch.landmark != nullptr && batch.landmark == before.landmark) ||
             (batch.after != nullptr && batch.after == before.after);
    }
    if (held) continue;
    look_after_ns_ = kFirstLookNs;
    std::shared_ptr<TransferWork> next = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    return next;
  }
  if (!waiting_.empty()) arm();
  return nullptr;
}

void TransferLane::assign() {
  while (assigned_ - finished_ < ring_.size() && at(assigned_).borrowed == 0) {
    if (current_ != nullptr && (current_->code != Code::ok || current_->assigned == current_->plan.parts.size())) {
      current_ = nullptr;
    }
    if (current_ == nullptr) {
      current_ = next_batch();
      if (current_ == nullptr) return;
      active_.push_back(current_);
      if (current_->code != Code::ok) {
        wake();  // the watcher closes a batch that was invalid from the start
        continue;
      }
    }
    Place& place = at(assigned_++);
    place.work = current_;
    place.part = current_->assigned++;
    place.nothing = place.failed = false;
    place.state = State::ready;
    if (part_of(place).bounced || part_of(place).coded_leaves() > 0) place.state = State::bare;
  }
}

TransferLane::Place* TransferLane::next_bare() {
  for (uint64_t i = issued_; i < assigned_ && !dead_; ++i) {
    if (at(i).state == State::bare) return &at(i);
  }
  return nullptr;
}

// Allocates, by the driver, the memory that a place needs the first time. Runs here because a task of the executor must
// never wait for the driver.
void TransferLane::give_memory(Place& place, const std::shared_ptr<TransferWork>& work) {
  const PlannedPart& part = work->plan.parts[place.part];
  Status s;
  if (part.bounced) s = staging_->pin(*place.memory);
  if (s.ok() && part.coded_leaves() > 0) s = staging_->make_coded(*place.memory, multiprocessors_);
  MutexLock lock(mutex_);
  if (dead_) return;
  if (!s.ok() && work->code == Code::ok) work->code = s.code();
  place.state = State::ready;
  if (work->code != Code::ok) return;
  place.state = State::preparing;
  post_task(place);
}

bool TransferLane::behind_failed(const TransferWork& work) const {
  for (const std::shared_ptr<TransferWork>& active : active_) {
    if (active.get() == &work) return false;
    if (active->code != Code::ok) return true;
  }
  return false;
}

TransferLane::Place* TransferLane::next_to_issue() {
  while (!dead_ && !closing_ && issued_ < assigned_) {
    Place& place = at(issued_);
    if (place.state == State::preparing || place.state == State::bare) return nullptr;
    if (place.work->code != Code::ok) {
      place.nothing = true;
      place.state = State::issued;
      ++issued_;
      wake();
      continue;
    }
    if (behind_failed(*place.work)) return nullptr;
    place.state = State::issuing;
    return &place;
  }
  return nullptr;
}

void TransferLane::issue(Place& place) {
  const Code code = issue_->issue(*place.work, part_of(place), *place.memory);
  {
    MutexLock lock(mutex_);
    place.failed = code != Code::ok;
    if (place.failed && place.work->code == Code::ok) place.work->code = code;
    // Its end could not be recorded: no event will tell when the device is done with it.
    if (place.failed && device_->is_lost()) quiet_ = false;
    place.state = State::issued;
    ++issued_;
    const PlannedPart& part = part_of(place);
    // The part counts as issued from here on, so wait_for_part() finds it. promise() notes that the device will reach
    // the part's mark by itself.
    if (!place.failed && part.has_mark) {
      landmarks_->promise(*place.work->batch.landmark, place.work->batch.marks[part.mark].value);
    }
    arm();
    wake();
  }
  if (device_->is_lost()) abandon_both();
}

Result<bool> TransferLane::wait_for_part(const Landmark& landmark, uint64_t value, CuStream stream, CuContext context) {
  Place* found = nullptr;
  {
    MutexLock lock(mutex_);
    for (uint64_t i = landed_; i < issued_ && found == nullptr && !dead_; ++i) {
      Place& place = at(i);
      if (place.nothing || place.failed || place.work->batch.landmark.get() != &landmark) continue;
      const PlannedPart& part = part_of(place);
      if (part.has_mark && place.work->batch.marks[part.mark].value >= value) found = &place;
    }
    if (found == nullptr) return false;
    ++found->borrowed;  // its event is not recorded again meanwhile
  }
  const CuResult result = device_->driver().cuStreamWaitEvent(stream, found->memory->end, 0);
  Status s = check_on_stream(*device_, result, context, "cuStreamWaitEvent on a stream of the caller's");
  {
    MutexLock lock(mutex_);
    --found->borrowed;
  }
  pump();
  if (!s.ok()) return s;
  return true;
}

// ---- Records that are not pinned, and memory for coded leaves ----

void TransferLane::post_task(Place& place) {
  ++place.work->tasks;
  ++tasks_;
  executor_.post([self = shared_from_this(), work = place.work, &place, in = place.state == State::preparing] {
    in ? self->prepare(place, work) : self->finish(place, work);
  });
}

void TransferLane::prepare(Place& place, const std::shared_ptr<TransferWork>& work) {
  const Code code = copy_in(place, *work);
  {
    MutexLock lock(mutex_);
    if (task_ended(work)) return;
    if (code != Code::ok && work->code == Code::ok) work->code = code;
    place.state = State::ready;
    advance();
  }
  pump();
}

void TransferLane::finish(Place& place, const std::shared_ptr<TransferWork>& work) {
  copy_out(place, *work);
  {
    MutexLock lock(mutex_);
    if (task_ended(work)) return;
    place.state = State::finished;
    advance();
  }
  pump();
}

// Returns true if the device was given up meanwhile: the last task of a batch answers it.
bool TransferLane::task_ended(const std::shared_ptr<TransferWork>& work) {
  --work->tasks;
  if (--tasks_ == 0) wake();
  if (!dead_) return false;
  answer_lost(work);
  return true;
}

Code TransferLane::copy_in(const Place& place, const TransferWork& work) {
  if (device_->is_lost()) return Code::tier_disabled;
  const PlannedPart& part = work.plan.parts[place.part];
  if (direction_ == Direction::gather || !part.bounced) return Code::ok;
  const codec::CopiesOrdered ordered;
  for (size_t i = part.first; i < part.first + part.count; ++i) {
    if (!work.plan.leaves[i].bounced) continue;
    const LeafMove& move = work.batch.leaves[i];
    (void)codec::copy_hashed(PartIssue::host(work, i, *place.memory), move.record, move.record_bytes(),
                             codec::CopyHint::streaming, codec::CopyOrder::later);
  }
  return Code::ok;
}

// Copies records out of pinned staging, and compares hashes. The device's hash is of the bytes that it read or wrote,
// and the copy must have the same. A difference means that a page was written to meanwhile, or that memory is faulty.
void TransferLane::copy_out(const Place& place, TransferWork& work) {
  const PlannedPart& part = work.plan.parts[place.part];
  const codec::CopiesOrdered ordered;
  size_t wrong = 0;
  for (size_t i = part.first; i < part.first + part.count; ++i) {
    if (!work.plan.leaves[i].bounced) continue;
    const LeafMove& move = work.batch.leaves[i];
    const uint64_t hash = codec::copy_hashed(move.record, PartIssue::host(work, i, *place.memory), move.device.total(),
                                             codec::CopyHint::automatic, codec::CopyOrder::later);
    if (hash == work.batch.hashes[i]) continue;
    work.batch.good[i] = 0;
    ++wrong;
  }
  if (wrong == 0) return;
  const MemoryWait patient;
  device_->complain(
      "blocks that were read out of a device are not what it says it read: they were written to meanwhile, "
      "or memory is faulty; they are not stored",
      Status(Code::damaged, "wrong leaves", std::to_string(wrong)));
}

}  // namespace kvbm::device
