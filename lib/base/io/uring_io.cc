// The io_uring engine: one ring and one thread, which alone submits to it and reaps.
//
// The kernel finishes a request on the thread that submitted it. If callers submitted, a finished request would wait
// until its caller returns from a blocking call, and the next request until a thread is notified. The ring's thread
// submits waiting requests before it reports finished ones.
//
// Of each device's reads, and of its writes, kFlightBytes and the excess of one request are with the kernel; the rest
// waits here. That is more than any disk needs to be busy. Some disks (virtio, where one host thread serves the queue)
// report nothing before their queue is empty: with all of a load in it, the first bytes would come with the last.
//
// Direct writes do not use the ring but a few threads that wait for each. For reserved space that was never written (a
// disk tier's segments) the kernel finishes an asynchronous write on its own worker, which the programs of a busy
// machine keep waiting. A synchronous one it finishes on the waiting thread. Measured with `kvbm bench disk` beside
// builds on both processors: 1.9 GB/s where a ring writes 0.4 to 1.5; on an idle machine both write equally fast.
//
// No more is in flight than the completion ring holds, so a full ring is not an error. The kernel may refuse the ring
// itself later (a process that confines itself after this was made). Then all requests go to the writing threads, for
// good. Requests that the kernel had accepted before still complete through the ring; its thread then ends.
// Lock: mutex_, a leaf.
#include <liburing.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <utility>
#include <vector>

#include "base/errno_status.h"
#include "base/io/fd.h"
#include "base/io/io_engine.h"
#include "base/io/io_patience.h"
#include "base/thread/memory_wait.h"
#include "base/thread/thread_executor.h"

namespace kvbm {

namespace {

constexpr uint32_t kBatch = 32;
constexpr uint32_t kBufferSlots = 64;
constexpr uint32_t kWriters = 4;  // at least
// The kernel refuses a larger registered buffer (io_sqe_buffer_register).
constexpr size_t kMaxBuffer = size_t{1} << 30;
// Measured with loads of 128 MiB from such a disk: 2 MiB cost up to 5 %, 4 and 16 MiB were as good.
constexpr uint64_t kFlightBytes = uint64_t{8} << 20;
// Period at which the thread wakes, if the kernel can wait with a timeout without a request for it (5.11).
constexpr __kernel_timespec kLookUp{1, 0};

// True if the answer to a request may concern the ring and not the file.
bool is_refusal(long answer) noexcept {
  return answer == -EPERM || answer == -EACCES || answer == -ENOSYS || answer == -EOPNOTSUPP || answer == -EINVAL;
}

class UringEngine final : public IoEngine {
 public:
  UringEngine(Executor& executor, std::shared_ptr<IoEngine> writer, const Log* log)
      : IoEngine(executor), writer_(std::move(writer)), log_(log) {}
  ~UringEngine() override;
  Status start(const UringOptions& options);

  int register_buffer(std::byte* data, size_t bytes) override;
  void unregister_buffer(int index) override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] IoEngine& for_direct_writes() noexcept override { return *writer_; }

 private:
  // Requests that wait and those with the kernel: reads, or all others.
  struct Line {
    std::deque<IoRequest*> waiting;
    uint64_t bytes = 0;  // with the kernel
    [[nodiscard]] bool has_room() const noexcept { return !waiting.empty() && bytes < kFlightBytes; }
  };
  struct Device {
    uint64_t number = 0;
    std::array<Line, 2> lines;
  };
  using Requests = std::array<IoRequest*, kBatch>;

  void submit(IoRequest* request) override;
  bool put_in_line(IoRequest* request) KVBM_REQUIRES(mutex_);
  void wake();
  void run();
  bool send_waiting();
  uint32_t take_waiting(Requests& batch, std::array<int, kBatch>& fixed) KVBM_REQUIRES(mutex_);
  Line& line_of(const IoRequest& request) KVBM_REQUIRES(mutex_);
  void came_back(IoRequest& request) KVBM_REQUIRES(mutex_);
  void arm();
  io_uring_sqe* next_entry();
  void prepare(IoRequest& request, int fixed);
  void enter();
  Status try_no_op();
  void give_up(int error);
  bool is_over() const;
  int wait_for_one();
  void handle(const std::array<std::pair<IoRequest*, long>, kBatch>& batch, uint32_t n);
  int fixed_index(const IoRequest& request) const KVBM_REQUIRES(mutex_);

  const std::shared_ptr<IoEngine> writer_;
  const Log* const log_;
  io_uring ring_{};
  bool ring_open_ = false;
  bool running_ = false;
  bool sparse_ = false;
  pthread_t thread_{};
  uint32_t limit_ = 0;
  Fd bell_;  // an eventfd that a request of the ring reads: a write to it wakes the thread
  uint64_t rung_ = 0;
  bool armed_ = false;  // used by the thread: that request is with the kernel

  mutable Mutex mutex_;
  std::vector<Device> devices_ KVBM_GUARDED_BY(mutex_);
  uint32_t in_flight_ KVBM_GUARDED_BY(mutex_) = 0;
  bool asleep_ KVBM_GUARDED_BY(mutex_) = false;  // the thread found nothing to submit, and was not woken since
  bool stopping_ KVBM_GUARDED_BY(mutex_) = false;
  int refusal_ KVBM_GUARDED_BY(mutex_) = 0;  // errno of the kernel's refusal of the ring; no request waits then
  std::array<IoRun, kBufferSlots> buffers_ KVBM_GUARDED_BY(mutex_);
  uint32_t registered_ KVBM_GUARDED_BY(mutex_) = 0;
  uint32_t refused_ KVBM_GUARDED_BY(mutex_) = 0;
};

Status UringEngine::start(const UringOptions& options) {
  io_uring_params params{};
  params.flags = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE;
  params.cq_entries = options.entries * 4;
  const int error = io_uring_queue_init_params(options.entries, &ring_, &params);
  if (error < 0) return Status(Code::unsupported, "io_uring is not available", ring_refusal("io_uring_setup", -error));
  ring_open_ = true;
  if (Status s = try_no_op(); !s.ok()) return s;
  limit_ = params.cq_entries - 1;  // leaves one entry for bell_
  bell_ = Fd(::eventfd(0, EFD_CLOEXEC));
  if (bell_.get() < 0) return errno_status(errno, "cannot make an eventfd for io_uring", "");
  io_uring_ring_dontfork(&ring_);
  // A table of empty slots. io_uring_register_buffers_sparse does the same, but liburing 2.1 (Ubuntu 22.04) lacks it,
  // and the kernel has its flag only since 5.19, empty slots since 5.13.
  const std::array<iovec, kBufferSlots> empty{};
  sparse_ = options.register_buffers && io_uring_register_buffers(&ring_, empty.data(), kBufferSlots) == 0;
  const auto entry = [](void* self) -> void* {
    static_cast<UringEngine*>(self)->run();
    return nullptr;
  };
  if (Status s = start_thread(thread_, "kvbm-uring", entry, this); !s.ok()) return s;
  running_ = true;
  return {};
}

// A ring that could be made may still be forbidden to use.
Status UringEngine::try_no_op() {
  io_uring_prep_nop(io_uring_get_sqe(&ring_));
  uint32_t attempts = 0;
  for (;;) {
    io_uring_cqe* cqe = nullptr;
    int error = io_uring_sq_ready(&ring_) > 0 ? io_uring_submit(&ring_) : 0;
    if (error >= 0) error = io_uring_wait_cqe(&ring_, &cqe);
    if (error >= 0) {
      const int answer = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (answer >= 0) return {};
      error = answer;
    } else if (try_io_again(error == -EBUSY ? EAGAIN : -error, attempts)) {
      continue;
    }
    return Status(Code::unsupported, "io_uring is not available", ring_refusal("io_uring_enter", -error));
  }
}

UringEngine::~UringEngine() {
  if (running_) {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake();
    pthread_join(thread_, nullptr);
  }
  if (ring_open_) io_uring_queue_exit(&ring_);
}

std::string UringEngine::describe() const {
  MutexLock lock(mutex_);
  if (refusal_ != 0) return writer_->describe() + "; " + ring_refusal("io_uring_enter", refusal_);
  std::string out = "io_uring, ";
  if (!sparse_) return out + "buffers not registered";
  out += std::to_string(registered_) + " registered buffers";
  if (refused_ > 0) out += ", " + std::to_string(refused_) + " refused (memlock limit or size)";
  return out;
}

int UringEngine::register_buffer(std::byte* data, size_t bytes) {
  MutexLock lock(mutex_);
  if (!sparse_) return -1;
  for (uint32_t i = 0; i < kBufferSlots; ++i) {
    if (buffers_[i].data != nullptr) continue;
    iovec vec{data, bytes};
    if (bytes > kMaxBuffer || io_uring_register_buffers_update_tag(&ring_, i, &vec, nullptr, 1) != 1) break;
    buffers_[i] = {data, bytes};
    ++registered_;
    return static_cast<int>(i);
  }
  ++refused_;
  return -1;
}

void UringEngine::unregister_buffer(int index) {
  MutexLock lock(mutex_);
  iovec none{nullptr, 0};
  const auto slot = static_cast<uint32_t>(index);
  io_uring_register_buffers_update_tag(&ring_, slot, &none, nullptr, 1);
  buffers_[slot] = {};
  --registered_;
}

int UringEngine::fixed_index(const IoRequest& r) const {
  if (registered_ == 0 || r.op == IoRequest::Op::sync || r.rest().size() != 1) return -1;
  const auto* data = static_cast<const std::byte*>(r.runs[r.first].iov_base);
  const size_t bytes = r.runs[r.first].iov_len;
  for (uint32_t i = 0; i < kBufferSlots; ++i) {
    const IoRun& b = buffers_[i];
    if (data >= b.data && bytes <= b.bytes && static_cast<size_t>(data - b.data) <= b.bytes - bytes) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

UringEngine::Line& UringEngine::line_of(const IoRequest& request) {
  const size_t which = request.op == IoRequest::Op::read ? 0 : 1;
  for (Device& device : devices_) {
    if (device.number == request.device) return device.lines[which];
  }
  devices_.push_back({request.device, {}});
  return devices_.back().lines[which];
}

// Queues the request. Returns true if the thread must be woken for it.
bool UringEngine::put_in_line(IoRequest* request) {
  Line& line = line_of(*request);
  if (request->op == IoRequest::Op::sync) {
    line.waiting.push_front(request);  // a sync covers writes that ended before it was queued
  } else {
    line.waiting.push_back(request);
  }
  const bool ring = asleep_ && line.has_room();
  if (ring) asleep_ = false;
  return ring;
}

void UringEngine::submit(IoRequest* request) {
  bool ring = false;
  bool refused = false;
  {
    MutexLock lock(mutex_);
    refused = refusal_ != 0;
    if (!refused) ring = put_in_line(request);
  }
  if (refused) writer_->take_over(request);
  if (ring) wake();
}

void UringEngine::wake() {
  const uint64_t one = 1;
  (void)uninterrupted([&] { return ::write(bell_.get(), &one, sizeof one); });
}

uint32_t UringEngine::take_waiting(Requests& batch, std::array<int, kBatch>& fixed) {
  uint32_t n = 0;
  for (Device& device : devices_) {
    for (Line& line : device.lines) {
      for (; n < kBatch && in_flight_ < limit_ && line.has_room(); ++n, ++in_flight_) {
        batch[n] = line.waiting.front();
        line.waiting.pop_front();
        batch[n]->in_flight = batch[n]->left();
        line.bytes += batch[n]->in_flight;
        fixed[n] = fixed_index(*batch[n]);
      }
    }
  }
  return n;
}

void UringEngine::came_back(IoRequest& request) {
  --in_flight_;
  line_of(request).bytes -= std::exchange(request.in_flight, 0);
}

// Submits what limits allow; false when the engine ends.
bool UringEngine::send_waiting() {
  Requests batch;
  std::array<int, kBatch> fixed;
  if (!armed_) arm();
  for (;;) {
    uint32_t n = 0;
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      n = take_waiting(batch, fixed);
      asleep_ = n == 0;
      stopping = stopping_;
    }
    for (uint32_t i = 0; i < n; ++i) prepare(*batch[i], fixed[i]);
    enter();
    if (n == 0) return !stopping;
  }
}

io_uring_sqe* UringEngine::next_entry() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  while (sqe == nullptr) {  // smaller than a batch: the kernel first takes what it holds
    enter();
    sqe = io_uring_get_sqe(&ring_);
  }
  return sqe;
}

void UringEngine::arm() {
  io_uring_sqe* const sqe = next_entry();
  io_uring_prep_read(sqe, bell_.get(), &rung_, sizeof rung_, 0);
  io_uring_sqe_set_data(sqe, nullptr);  // marks it as no request
  armed_ = true;
}

void UringEngine::prepare(IoRequest& r, int fixed) {
  io_uring_sqe* const sqe = next_entry();
  const auto runs = r.rest();
  if (r.op == IoRequest::Op::sync) {
    io_uring_prep_fsync(sqe, r.fd, IORING_FSYNC_DATASYNC);
  } else if (fixed >= 0) {
    // One call moves at most as much as a signed 32-bit count holds; the rest is continued.
    const auto bytes = static_cast<unsigned>(std::min<size_t>(runs[0].iov_len, kMaxBuffer));
    if (r.op == IoRequest::Op::read) {
      io_uring_prep_read_fixed(sqe, r.fd, runs[0].iov_base, bytes, r.offset, fixed);
    } else {
      io_uring_prep_write_fixed(sqe, r.fd, runs[0].iov_base, bytes, r.offset, fixed);
    }
  } else if (r.op == IoRequest::Op::read) {
    io_uring_prep_readv(sqe, r.fd, runs.data(), static_cast<unsigned>(runs.size()), r.offset);
  } else {
    io_uring_prep_writev(sqe, r.fd, runs.data(), static_cast<unsigned>(runs.size()), r.offset);
  }
  if (r.retried) sqe->flags |= IOSQE_ASYNC;
  io_uring_sqe_set_data(sqe, &r);
}

// Submits every prepared entry to the kernel, or passes them to the threads. EAGAIN and EBUSY mean that the kernel
// lacks memory for requests, or holds completions that wait to be taken: both are temporary.
void UringEngine::enter() {
  uint32_t refusals = 0;
  while (io_uring_sq_ready(&ring_) > 0) {
    const int n = io_uring_submit(&ring_);
    if (n < 0 && n != -EAGAIN && n != -EBUSY && n != -EINTR) return give_up(-n);
    if (n > 0) {
      refusals = 0;
    } else if (++refusals < IoRequest::kTriesAtOnce) {
      sched_yield();
    } else {
      io_pause();
    }
  }
}

// Passes entries that the kernel refuses, and all waiting requests, to the threads. The kernel has not taken these
// entries, and reads them at no other time than in the call that just failed.
void UringEngine::give_up(int error) {
  io_uring_sq& sq = ring_.sq;
  const unsigned taken = *sq.khead;
  const unsigned end = sq.sqe_tail;
  io_uring_smp_store_release(sq.ktail, taken);
  sq.sqe_head = sq.sqe_tail = taken;
  std::vector<IoRequest*> left;
  bool first = false;
  {
    MutexLock lock(mutex_);
    for (unsigned at = taken; at != end; ++at) {
      auto* const request =
          reinterpret_cast<IoRequest*>(static_cast<uintptr_t>(sq.sqes[at & *sq.kring_mask].user_data));
      if (request == nullptr) {
        armed_ = false;
        continue;
      }
      came_back(*request);
      left.push_back(request);
    }
    for (Device& device : devices_) {
      for (Line& line : device.lines) left.insert(left.end(), line.waiting.begin(), line.waiting.end());
      for (Line& line : device.lines) line.waiting.clear();
    }
    first = refusal_ == 0;
    if (first) refusal_ = error;
  }
  if (first && log_ != nullptr)
    warn_of_ring(*log_, "io_uring is refused from now on, " + ring_refusal("io_uring_enter", error));
  for (IoRequest* const request : left) writer_->take_over(request);
}

// True if the ring is refused and nothing in flight is left in it.
bool UringEngine::is_over() const {
  MutexLock lock(mutex_);
  return refusal_ != 0 && in_flight_ == 0;
}

// Returns 0 if there may be a completion.
int UringEngine::wait_for_one() {
  io_uring_cqe* first = nullptr;
  if (!armed_) {  // the kernel refuses the ring: completions are polled, without a call
    if (io_uring_peek_cqe(&ring_, &first) != 0) io_pause();
    return 0;
  }
  if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) return io_uring_wait_cqe(&ring_, &first);
  __kernel_timespec time = kLookUp;
  return io_uring_wait_cqe_timeout(&ring_, &first, &time);
}

void UringEngine::run() {
  const MemoryWait patient;
  while (send_waiting() && !is_over()) {
    if (const int error = wait_for_one(); error < 0) {
      if (error != -EINTR && error != -ETIME) io_pause();  // refused: requests in flight complete all the same
      continue;
    }
    std::array<io_uring_cqe*, kBatch> entries;
    std::array<std::pair<IoRequest*, long>, kBatch> batch;
    const unsigned n = io_uring_peek_batch_cqe(&ring_, entries.data(), kBatch);
    for (unsigned i = 0; i < n; ++i) {
      batch[i] = {static_cast<IoRequest*>(io_uring_cqe_get_data(entries[i])), entries[i]->res};
    }
    io_uring_cq_advance(&ring_, n);
    handle(batch, n);
  }
}

void UringEngine::handle(const std::array<std::pair<IoRequest*, long>, kBatch>& batch, uint32_t n) {
  // Each request is in one of these: ended, to be continued at once, to be continued later, or refused by the ring
  // although the file may support it: a plain call will show.
  Requests over;
  Requests elsewhere;
  Requests again;
  Requests later;
  uint32_t n_over = 0;
  uint32_t n_again = 0;
  uint32_t n_later = 0;
  uint32_t n_elsewhere = 0;
  for (uint32_t i = 0; i < n; ++i) {
    auto [request, answer] = batch[i];
    if (request == nullptr) {
      armed_ = false;
      if (is_refusal(answer)) give_up(static_cast<int>(-answer));  // the refusal would repeat
    } else if (is_refusal(answer)) {
      elsewhere[n_elsewhere++] = request;
    } else if (request->advance(answer)) {
      over[n_over++] = request;
    } else if (request->should_pause()) {
      later[n_later++] = request;
    } else {
      again[n_again++] = request;
    }
  }
  {
    MutexLock lock(mutex_);
    for (uint32_t i = 0; i < n; ++i) {
      if (batch[i].first != nullptr) came_back(*batch[i].first);
    }
    for (uint32_t i = n_again; i-- > 0;) line_of(*again[i]).waiting.push_front(again[i]);
  }
  (void)send_waiting();
  // Last, because after the last completion the engine's owner may destroy it.
  for (uint32_t i = 0; i < n_elsewhere; ++i) writer_->take_over(elsewhere[i]);
  for (uint32_t i = 0; i < n_later; ++i) submit_later(later[i]);
  for (uint32_t i = 0; i < n_over; ++i) complete(over[i]);
}

}  // namespace

Result<std::shared_ptr<IoEngine>> make_uring_engine(Executor& executor, const UringOptions& options) {
  auto writer = make_pread_engine(executor, std::max(kWriters, options.pread_threads));
  if (!writer.ok()) return writer.status();
  auto engine = std::make_shared<UringEngine>(executor, std::move(writer).value(), options.log);
  if (Status s = engine->start(options); !s.ok()) return s;
  return std::shared_ptr<IoEngine>(std::move(engine));
}

}  // namespace kvbm
