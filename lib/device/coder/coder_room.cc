#include "device/coder/coder_room.h"

#include <time.h>

#include <algorithm>

#include "base/clock.h"
#include "codec/record/record.h"

namespace kvbm::device {

namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kLeastWindow = 4 * codec::kMaxLeafBytes;
constexpr uint64_t kMostWindow = 64ULL << 20;
constexpr long kRoomLookEveryNs = 50'000;
constexpr const char* kNoEnd = "coding blocks of a cache did not end within device.lost_after";

}  // namespace

Result<std::shared_ptr<CoderRoom>> CoderRoom::create(std::shared_ptr<Device> device, const CoderOptions& options) {
  const Device::Scope scope(*device);
  if (!scope.entered()) return device->lost();
  std::shared_ptr<CoderRoom> room(new CoderRoom(device));
  if (Status s = room->make(options); !s.ok()) return s;
  return room;
}

Status CoderRoom::make(const CoderOptions& options) {
  multiprocessors_ = std::max(options.multiprocessors, 1U);
  stall_ns_ = options.stall_ns;
  const uint64_t window = round_up(std::clamp(options.window_bytes, kLeastWindow, kMostWindow), kAlignment);
  const uint64_t coded = window + kLeaves * codec::kCodedLeafUnit;
  const uint64_t scratch = uint64_t{multiprocessors_} * kCodedWarps * kCodedScratch;
  const struct {
    std::unique_ptr<DeviceMemory>* memory;
    uint64_t bytes;
  } pieces[] = {{&window_, window}, {&coded_, coded}, {&scratch_, scratch}};
  for (const auto& [memory, bytes] : pieces) {
    auto made = DeviceMemory::allocate(device_, bytes);
    if (!made.ok()) return made.status();
    *memory = std::move(made).value();
  }
  const uint64_t jobs = round_up(kRuns * sizeof(LeafJob), kAlignment);
  const uint64_t coded_jobs = jobs + round_up(kLeaves * sizeof(CodedJob), kAlignment);
  const uint64_t results = coded_jobs + round_up(kLeaves * sizeof(CodedResult), kAlignment);
  const uint64_t hashes = results + round_up(kRuns * sizeof(uint64_t), kAlignment);
  auto landing = PinnedMemory::allocate(device_, coded);
  if (!landing.ok()) return landing.status();
  landing_ = std::move(landing).value();
  auto words = PinnedMemory::allocate(device_, hashes + kRuns);
  if (!words.ok()) return words.status();
  words_ = std::move(words).value();
  std::byte* const host = words_->data();
  jobs_ = reinterpret_cast<LeafJob*>(host);
  coded_jobs_ = reinterpret_cast<CodedJob*>(host + jobs);
  results_ = reinterpret_cast<CodedResult*>(host + coded_jobs);
  jobs_device_ = words_->device_pointer();
  coded_jobs_device_ = jobs_device_ + jobs;
  results_device_ = jobs_device_ + coded_jobs;
  hashes_device_ = jobs_device_ + results;
  good_device_ = jobs_device_ + hashes;
  return make_stream();
}

Status CoderRoom::make_stream() {
  const Driver& driver = device_->driver();
  int least = 0;
  int greatest = 0;
  if (Status s = device_->check(driver.cuCtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange");
      !s.ok()) {
    return s;
  }
  // Gives the stream the lowest priority, because no stream of the engine waits for it.
  const CuResult made = driver.cuStreamCreateWithPriority(&stream_, kCuStreamNonBlocking, least);
  if (Status s = device_->check(made, "cuStreamCreateWithPriority"); !s.ok()) return s;
  return device_->check(driver.cuEventCreate(&end_, kCuEventDisableTiming), "cuEventCreate");
}

CoderRoom::~CoderRoom() {
  const Device::Scope scope(*device_);
  if (!scope.entered()) return;
  if (end_ != nullptr) device_->note(device_->driver().cuEventDestroy(end_), "cuEventDestroy");
  if (stream_ != nullptr) device_->note(device_->driver().cuStreamDestroy(stream_), "cuStreamDestroy");
}

void CoderRoom::set_run(size_t job, const StridedRun& run, uint64_t window_at) noexcept {
  const DeviceRun pieces = make_run(address_of(run.data), run.bytes, run.count1, run.stride0, run.stride1);
  // Makes the job without a comparison of hashes: a leaf for the cache was compared when it was decoded into the
  // window.
  jobs_[job] = make_leaf_job(pieces, run.count0, window() + window_at, false, 0);
}

Status CoderRoom::move(size_t jobs, bool out) {
  if (jobs == 0) return {};
  uint32_t largest = 0;
  for (size_t i = 0; i < jobs; ++i) largest = std::max(largest, jobs_[i].bytes);
  const CuResult result = device_->kernels().launch_leaves(
      out ? Kernel::gather_leaves : Kernel::scatter_leaves, stream_, multiprocessors_, jobs_device_,
      static_cast<uint32_t>(jobs), warps_for(largest), hashes_device_, good_device_);
  return device_->check(result,
                        out ? "launching the kernel that gathers blocks" : "launching the kernel that scatters blocks");
}

Status CoderRoom::launch(Kernel kernel, size_t first, size_t n) {
  if (n == 0) return {};
  const CuPointer jobs = coded_jobs_device_ + first * sizeof(CodedJob);
  const CuPointer results = results_device_ + first * sizeof(CodedResult);
  const CuResult result = device_->kernels().launch_coded(kernel, stream_, multiprocessors_, jobs,
                                                          static_cast<uint32_t>(n), results, scratch_->address());
  return device_->check(result, kernel_name(kernel));
}

Status CoderRoom::copy(CuPointer to, CuPointer from, uint64_t bytes) {
  if (bytes == 0) return {};
  return device_->check(device_->driver().cuMemcpyAsync(to, from, bytes, stream_), "cuMemcpyAsync");
}

Status CoderRoom::bring_coded(uint64_t at, uint64_t bytes) {
  return copy(address_of(landing() + at), coded() + at, bytes);
}
Status CoderRoom::bring_window(uint64_t window_at, uint64_t at, uint64_t bytes) {
  return copy(address_of(landing() + at), window() + window_at, bytes);
}
Status CoderRoom::send_coded(uint64_t at, uint64_t bytes) {
  return copy(coded() + at, address_of(landing() + at), bytes);
}
Status CoderRoom::send_window(uint64_t at, uint64_t window_at, uint64_t bytes) {
  return copy(window() + window_at, address_of(landing() + at), bytes);
}
Status CoderRoom::move_window(uint64_t from, uint64_t to, uint64_t bytes) {
  return copy(window() + to, window() + from, bytes);
}

// Polls instead of calling cuEventSynchronize: a device that never ends must not block the caller for ever.
Status CoderRoom::wait() {
  if (Status s = device_->check(device_->driver().cuEventRecord(end_, stream_), "cuEventRecord"); !s.ok()) return s;
  const SystemClock clock;
  const uint64_t until = deadline_after(clock, stall_ns_);
  for (;;) {
    const CuResult result = device_->driver().cuEventQuery(end_);
    if (result == kCuSuccess) late_ = false;
    if (result != kCuNotReady) return device_->check(result, "cuEventQuery");
    if (device_->is_lost()) return device_->lost();
    if (clock.now_ns() >= until) {
      give_up();
      return late_ ? Status(Code::deadline, kNoEnd, "other work keeps the device: try again later") : device_->lost();
    }
    const timespec pause{0, kRoomLookEveryNs};
    (void)::nanosleep(&pause, nullptr);
  }
}

// Called if work did not end in time and the driver still reports it as running.
void CoderRoom::give_up() noexcept {
  late_ = !writes_outside_;
  if (writes_outside_) device_->lose(kNoEnd, kCuSuccess);
}

void CoderRoom::settle() noexcept {
  const Driver& driver = device_->driver();
  const SystemClock clock;
  const uint64_t until = deadline_after(clock, stall_ns_);
  bool recorded = false;
  while (!device_->is_lost()) {
    DriverCall::alive();
    const CuResult result = recorded ? driver.cuEventQuery(end_) : driver.cuEventRecord(end_, stream_);
    device_->note(result, recorded ? "cuEventQuery" : "cuEventRecord");
    if (recorded && result == kCuSuccess) return;
    recorded = recorded || result == kCuSuccess;
    if (clock.now_ns() >= until) {
      if (result == kCuNotReady) {
        give_up();
      } else {
        device_->lose(kNoEnd, kCuSuccess);
      }
      return;
    }
    const timespec pause{0, kRoomLookEveryNs};
    (void)::nanosleep(&pause, nullptr);
  }
}

}  // namespace kvbm::device
