// One direction of the transfers of a device: batches in order, parts of them in a ring, and the thread that waits.
//
// A part has a place in the ring from when it is begun until its last byte is where it belongs:
//   bare (its place lacks memory)  ->  preparing (a task copies records that are not pinned)  ->  ready
//   ->  issued (the driver has it)  ->  landed  ->  finishing (a task copies to unpinned records)  ->  finished
// Parts enter, are issued, land and leave in one order, so four counters describe the ring. Code that changes something
// calls pump(), which has the lane's own thread give places and issue.
// Driver calls are made by that thread and by the watcher, under no lock, and never by the caller of submit(). So a
// call that does not return (driver_watch.h) blocks no operation, no task of the executor and no timer.
//
// A batch that fails stops the lane until everything issued has landed. Then the watcher overwrites the leaves that did
// not land and raises the batch's landmark, and the lane continues. A lost device ends everything at once: batches are
// answered. The ring keeps references to what the device may still touch, until the device is proven quiet, or for
// ever.
//
// Threads: the watcher, kvbm-gather or kvbm-scatter, sleeps on a condition variable while nothing is issued and in the
// driver (blocking, not spinning) while something is. The thread that issues is kvbm-gather-0 or kvbm-scatter-0. Lock:
// mutex_, held over Executor::post, LandmarkPool calls and nothing else.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/thread/executor.h"
#include "base/thread/mutex.h"
#include "device/transfer/landmark.h"
#include "device/transfer/part_issue.h"
#include "device/transfer/staging.h"
#include "device/transfer/stream_point.h"
#include "device/transfer/transfer_work.h"
#include "device/transfer/transfers.h"

namespace kvbm::device {

class TransferLane : public std::enable_shared_from_this<TransferLane> {
 public:
  // `part_leaves`: the most leaves of one part.
  static Result<std::shared_ptr<TransferLane>> create(Direction direction, std::shared_ptr<Device> device,
                                                      std::shared_ptr<LandmarkPool> landmarks,
                                                      const TransferOptions& options, size_t places, size_t part_leaves,
                                                      Executor& executor);
  ~TransferLane();
  TransferLane(const TransferLane&) = delete;
  TransferLane& operator=(const TransferLane&) = delete;

  // Sets the other lane, so that each gives up together with the other. Called before anything is submitted.
  void set_peer(const std::shared_ptr<TransferLane>& peer) { peer_ = peer; }
  void submit(std::shared_ptr<TransferWork> work);
  // Gives places and issues parts as far as possible, on the lane's thread. Never called under a lock.
  void pump();
  // Called when the watch of the device found a call that does not return.
  void give_up();
  // Makes `stream` wait for the end of the issued part that brings the landmark to `value`; returns false if none is
  // issued. `context` is the stream's, and current.
  Result<bool> wait_for_part(const Landmark& landmark, uint64_t value, CuStream stream, CuContext context);
  // Waits until everything submitted has ended, ends the threads and releases what the device and the driver hold;
  // gives up what makes no progress. Called once.
  void close();
  [[nodiscard]] TransferStats stats() const;

 private:
  enum class State : uint8_t { free, bare, preparing, ready, issuing, issued, finishing, finished };
  struct Place {
    StagingPlace* memory = nullptr;
    State state = State::free;
    bool nothing = false;   // no work of it was given to the driver
    bool failed = false;    // not all of its work was
    uint32_t borrowed = 0;  // streams that are being made to wait for its end
    std::shared_ptr<TransferWork> work;
    size_t part = 0;
  };

  // First and longest interval between queries of an engine's stream: a quarter of a millisecond, doubled each time.
  static constexpr uint64_t kFirstLookNs = 250'000;
  static constexpr uint64_t kLastLookNs = 4'000'000;
  // Time that close() waits for threads that are in the driver of a device given up; then they are left behind.
  static constexpr uint64_t kLeaveAfterNs = 1'000'000'000;

  TransferLane(Direction direction, std::shared_ptr<Device> device, std::shared_ptr<LandmarkPool> landmarks,
               const TransferOptions& options, Executor& executor)
      : direction_(direction),
        device_(std::move(device)),
        landmarks_(std::move(landmarks)),
        multiprocessors_(options.multiprocessors),
        stall_ns_(options.stall_ns),
        executor_(executor) {}

  [[nodiscard]] Place& at(uint64_t sequence) noexcept KVBM_REQUIRES(mutex_) { return ring_[sequence % ring_.size()]; }
  [[nodiscard]] static const PlannedPart& part_of(const Place& place) noexcept {
    return place.work->plan.parts[place.part];
  }

  // ---- Giving places and issuing ----
  void issue_all() KVBM_EXCLUDES(mutex_);
  std::shared_ptr<TransferWork> next_batch() KVBM_REQUIRES(mutex_);
  void assign() KVBM_REQUIRES(mutex_);
  Place* next_bare() KVBM_REQUIRES(mutex_);
  void give_memory(Place& place, const std::shared_ptr<TransferWork>& work) KVBM_EXCLUDES(mutex_);
  Place* next_to_issue() KVBM_REQUIRES(mutex_);
  [[nodiscard]] bool behind_failed(const TransferWork& work) const KVBM_REQUIRES(mutex_);
  void issue(Place& place) KVBM_EXCLUDES(mutex_);
  void post_task(Place& place) KVBM_REQUIRES(mutex_);
  void prepare(Place& place, const std::shared_ptr<TransferWork>& work) KVBM_EXCLUDES(mutex_);
  void finish(Place& place, const std::shared_ptr<TransferWork>& work) KVBM_EXCLUDES(mutex_);
  [[nodiscard]] Code copy_in(const Place& place, const TransferWork& work);
  void copy_out(const Place& place, TransferWork& work);
  [[nodiscard]] bool task_ended(const std::shared_ptr<TransferWork>& work) KVBM_REQUIRES(mutex_);

  // ---- Landing and ending ----
  static void* entry(void* self);
  void watch();
  bool land(Place& place) KVBM_EXCLUDES(mutex_);
  void landed(Place& place, uint64_t device_ns) KVBM_REQUIRES(mutex_);
  [[nodiscard]] uint64_t device_ns(const StagingPlace& place);
  void advance() KVBM_REQUIRES(mutex_);
  [[nodiscard]] bool must_close() const KVBM_REQUIRES(mutex_);
  void close_failed() KVBM_EXCLUDES(mutex_);
  void end(std::shared_ptr<TransferWork> work) KVBM_REQUIRES(mutex_);
  void count(const TransferWork& work) KVBM_REQUIRES(mutex_);

  // ---- Giving up ----
  // Ends all batches with tier_disabled.
  void abandon() KVBM_EXCLUDES(mutex_);
  void abandon_both() KVBM_EXCLUDES(mutex_);
  void answer_lost(const std::shared_ptr<TransferWork>& work) KVBM_REQUIRES(mutex_);
  void arm() KVBM_REQUIRES(mutex_);
  // Returns whether an unpromised landmark keeps, or may keep, the caller's stream from the batch's point.
  [[nodiscard]] bool stands_behind_a_landmark(TransferWork& work) KVBM_REQUIRES(mutex_);
  // Returns the batches that may stand behind a landmark. Only the driver knows whether they do; ask_points() asks it
  // without the lock.
  [[nodiscard]] std::vector<std::shared_ptr<TransferWork>> unsure() const KVBM_REQUIRES(mutex_);
  void ask_points(const std::vector<std::shared_ptr<TransferWork>>& works) KVBM_EXCLUDES(mutex_);
  // Schedules a call of pump(): no call of ours reports when a stream of the engine makes progress.
  void look_again() KVBM_REQUIRES(mutex_);
  // Finds out whether the lane makes progress. Runs on its thread.
  void look_for_stall() KVBM_EXCLUDES(mutex_);
  [[nodiscard]] bool idle() const KVBM_REQUIRES(mutex_);
  // Sleeps until wake() or the given time. Returns false if the time came first.
  bool wait_until(std::chrono::steady_clock::time_point until) KVBM_REQUIRES(mutex_);
  void wake() KVBM_REQUIRES(mutex_) { changed_.notify_all(); }

  const Direction direction_;
  const std::shared_ptr<Device> device_;
  const std::shared_ptr<LandmarkPool> landmarks_;
  const uint32_t multiprocessors_;
  const uint64_t stall_ns_;
  Executor& executor_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<PartIssue> issue_;  // used by the issuing thread, and by the watcher while the lane is stopped
  std::shared_ptr<Executor> issuer_;  // one thread
  std::weak_ptr<TransferLane> peer_;
  pthread_t thread_{};

  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<TransferWork>> waiting_ KVBM_GUARDED_BY(mutex_);  // no part of them has a place
  std::deque<std::shared_ptr<TransferWork>> active_ KVBM_GUARDED_BY(mutex_);   // begun, in the order of the ring
  std::shared_ptr<TransferWork> current_ KVBM_GUARDED_BY(mutex_);              // last of active_, if parts are left
  std::vector<Place> ring_;  // fields of a place belong, by its state, to the lane under mutex_, a task or the watcher
  uint64_t assigned_ KVBM_GUARDED_BY(mutex_) = 0;  // >= issued_ >= landed_ >= finished_
  uint64_t issued_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t landed_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t finished_ KVBM_GUARDED_BY(mutex_) = 0;
  bool pumping_ KVBM_GUARDED_BY(mutex_) = false;
  bool closing_ KVBM_GUARDED_BY(mutex_) = false;  // the watcher cleans up after a failed batch
  bool stopping_ KVBM_GUARDED_BY(mutex_) = false;
  bool closed_ KVBM_GUARDED_BY(mutex_) = false;  // no task is posted to the lane's thread any more
  size_t tasks_ KVBM_GUARDED_BY(mutex_) = 0;     // of the executor, under way
  bool dead_ KVBM_GUARDED_BY(mutex_) = false;
  bool quiet_ KVBM_GUARDED_BY(mutex_) = true;      // false: the device may still touch what the ring refers to
  bool watching_ KVBM_GUARDED_BY(mutex_) = false;  // the watcher runs
  bool armed_ KVBM_GUARDED_BY(mutex_) = false;     // look_due_ will be set
  bool look_due_ KVBM_GUARDED_BY(mutex_) = false;  // look_for_stall() is next
  bool looking_ KVBM_GUARDED_BY(mutex_) = false;   // look_again() will call pump()
  uint64_t look_after_ns_ KVBM_GUARDED_BY(mutex_) = kFirstLookNs;
  uint32_t stuck_ticks_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t ticked_at_ KVBM_GUARDED_BY(mutex_) = 0;  // landed_ at the last look
  TransferStats stats_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::device
