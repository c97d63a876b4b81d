// Memory and stream for coding blocks of a cache on a device (block_coder.h): a window of plain bytes and room for
// coded leaves on the device, pinned memory for the bytes that cross the bus and for jobs, one stream.
//
// Everything is enqueued on that stream, so each step sees the results of those before it. Before the CPU reads results
// or writes that memory again, it calls wait(). Thread: one at a time, with the device's context current.
#pragma once

#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/status.h"
#include "device/context/device.h"
#include "device/kernels/codec_job.h"
#include "device/kernels/kernel_set.h"
#include "device/kernels/leaf_job.h"
#include "device/memory/device_memory.h"

namespace kvbm::device {

struct CoderOptions {
  uint32_t multiprocessors = 8;        // that kernels use at most
  uint64_t window_bytes = 8ULL << 20;  // plain bytes on the device at a time; at least 256 KiB
  // Time within which enqueued work must end. After it the call ends, and in a decode the device is given up. kNever:
  // no limit.
  uint64_t stall_ns = 10'000'000'000ULL;
};

class CoderRoom {
 public:
  static constexpr size_t kRuns = 8192;   // of one gather or scatter
  static constexpr size_t kLeaves = 512;  // of one launch of a coder

  // Releases what it allocated when it fails. Errors: no_memory, tier_disabled, internal.
  static Result<std::shared_ptr<CoderRoom>> create(std::shared_ptr<Device> device, const CoderOptions& options);
  // May run only when the device is done with all of it; otherwise the room must be retained.
  ~CoderRoom();
  CoderRoom(const CoderRoom&) = delete;
  CoderRoom& operator=(const CoderRoom&) = delete;

  [[nodiscard]] CuStream stream() const noexcept { return stream_; }
  [[nodiscard]] CuPointer window() const noexcept { return window_->address(); }
  [[nodiscard]] uint64_t window_bytes() const noexcept { return window_->bytes(); }
  // Coded leaves on the device, and in pinned memory on their way: places of one have the same offset in the other, and
  // begin at multiples of 64. Each has space for a window in kLeaves leaves.
  [[nodiscard]] CuPointer coded() const noexcept { return coded_->address(); }
  [[nodiscard]] std::byte* landing() const noexcept { return landing_->data(); }
  [[nodiscard]] uint64_t coded_bytes() const noexcept { return coded_->bytes(); }

  // Fills in copy job `job`, counted from 0: it connects `run`, a run of the engine's cache in device memory, with the
  // plain bytes at `window_at` in the window. gather() then copies from runs to the window, scatter() from the window
  // to runs.
  void set_run(size_t job, const StridedRun& run, uint64_t window_at) noexcept;
  Status gather(size_t jobs) { return move(jobs, true); }
  Status scatter(size_t jobs) { return move(jobs, false); }
  // Jobs of a coder's kernel, [first, first + n). Results are valid after wait().
  [[nodiscard]] CodedJob& leaf(size_t job) noexcept { return coded_jobs_[job]; }
  [[nodiscard]] const CodedResult& result(size_t job) const noexcept { return results_[job]; }
  Status launch(Kernel kernel, size_t first, size_t n);

  Status bring_coded(uint64_t at, uint64_t bytes);                       // to the landing, same place
  Status bring_window(uint64_t window_at, uint64_t at, uint64_t bytes);  // to the landing at `at`
  Status send_coded(uint64_t at, uint64_t bytes);                        // out of the landing, same place
  Status send_window(uint64_t at, uint64_t window_at, uint64_t bytes);   // out of the landing at `at`
  Status move_window(uint64_t from, uint64_t to, uint64_t bytes);        // no overlap

  // Begins a call. `writes_outside` is false if its work writes only to the room. Such work, if it does not end in
  // time, leaves the room late and the device usable: other work may keep a stream of the lowest priority from the
  // multiprocessors for long. If the work writes to the caller's memory, the device is given up.
  void begin(bool writes_outside) noexcept { writes_outside_ = writes_outside; }
  // Returns true if the device may still run work of a call that has returned: nothing may be enqueued before a wait()
  // that is ok.
  [[nodiscard]] bool is_late() const noexcept { return late_; }

  // Waits until everything enqueued has ended. tier_disabled: the device is lost, or was given up by this call;
  // deadline: the room is late.
  Status wait();
  // Waits like wait() behind a failure, where the driver may refuse to answer. Queries until it answers, or the device
  // is given up, or the room is late. Allocates only for the log.
  void settle() noexcept;

 private:
  explicit CoderRoom(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  Status make(const CoderOptions& options);
  Status make_stream();
  void give_up() noexcept;
  Status move(size_t jobs, bool out);
  Status copy(CuPointer to, CuPointer from, uint64_t bytes);

  const std::shared_ptr<Device> device_;
  uint32_t multiprocessors_ = 1;
  uint64_t stall_ns_ = 0;
  bool writes_outside_ = true;
  bool late_ = false;
  std::unique_ptr<DeviceMemory> window_, coded_, scratch_;
  std::unique_ptr<PinnedMemory> landing_, words_;
  LeafJob* jobs_ = nullptr;
  CodedJob* coded_jobs_ = nullptr;
  CodedResult* results_ = nullptr;
  CuPointer jobs_device_ = 0, coded_jobs_device_ = 0, results_device_ = 0, hashes_device_ = 0, good_device_ = 0;
  CuStream stream_ = nullptr;
  CuEvent end_ = nullptr;
};

}  // namespace kvbm::device
