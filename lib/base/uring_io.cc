// The io_uring engine: one ring, submissions from any thread, one thread that reaps.
//
// Whoever finds nobody submitting becomes the submitter and takes along what others queue
// meanwhile, so the kernel is entered outside the lock and once for many requests under load. The
// reaper sleeps in the kernel. In flight is never more than the completion ring holds; the rest
// waits in a queue, so a full ring is not an error. Where the kernel comes to refuse the ring itself (a process that
// confines itself after this was made), requests end with that error.
// Lock: mutex_, a leaf. It also orders a request's fields between submitter and reaper.
#include <liburing.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>

#include "base/errno_status.h"
#include "base/io_engine.h"
#include "base/io_patience.h"
#include "base/memory_wait.h"
#include "base/thread_executor.h"

namespace kvbm {

namespace {

constexpr uint32_t kBatch = 32;
constexpr uint32_t kBufferSlots = 64;
// The kernel refuses a larger registered buffer (io_sqe_buffer_register).
constexpr size_t kMaxBuffer = size_t{1} << 30;
// The reaper looks up this often from a kernel that can wait for a time without a request for it (5.11).
constexpr __kernel_timespec kLookUp{1, 0};

class UringEngine final : public IoEngine {
 public:
  explicit UringEngine(Executor& executor) : IoEngine(executor) {}
  ~UringEngine() override;
  Status start(const UringOptions& options);

  int register_buffer(std::byte* data, size_t bytes) override;
  void unregister_buffer(int index) override;
  [[nodiscard]] std::string describe() const override;

 private:
  struct Buffer {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };

  void submit(IoRequest* request) override;
  bool submitting() const {
    MutexLock lock(mutex_);
    return submitting_;
  }
  void pump();
  void prepare(IoRequest& request, int fixed);
  void enter();
  void take_back(int error);
  int wait_for_one();
  void reap();
  bool handle(const std::array<std::pair<IoRequest*, long>, kBatch>& batch, uint32_t n);
  int fixed_index(const IoRequest& request) const KVBM_REQUIRES(mutex_);

  io_uring ring_{};
  bool ring_open_ = false;
  bool reaping_ = false;
  bool sparse_ = false;
  pthread_t reaper_{};
  uint32_t limit_ = 0;
  std::atomic<bool> ended_{false};  // the request that ends the reaper was refused; relaxed, says nothing else

  mutable Mutex mutex_;
  std::deque<IoRequest*> waiting_ KVBM_GUARDED_BY(mutex_);
  uint32_t in_flight_ KVBM_GUARDED_BY(mutex_) = 0;
  bool submitting_ KVBM_GUARDED_BY(mutex_) = false;  // its setter alone touches the submission ring
  std::array<Buffer, kBufferSlots> buffers_ KVBM_GUARDED_BY(mutex_);
  uint32_t registered_ KVBM_GUARDED_BY(mutex_) = 0;
  uint32_t refused_ KVBM_GUARDED_BY(mutex_) = 0;
};

Status UringEngine::start(const UringOptions& options) {
  io_uring_params params{};
  params.flags = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE;
  params.cq_entries = options.entries * 4;
  const int error = io_uring_queue_init_params(options.entries, &ring_, &params);
  if (error < 0)
    return Status(Code::unsupported, "io_uring is not available", errno_status(-error, "", "io_uring_setup").message());
  ring_open_ = true;
  limit_ = params.cq_entries;
  io_uring_ring_dontfork(&ring_);
  // A table of empty slots. io_uring_register_buffers_sparse says the same, but liburing 2.1 (Ubuntu 22.04) lacks it,
  // and the kernel knows its flag since 5.19 alone, empty slots since 5.13.
  const std::array<iovec, kBufferSlots> empty{};
  sparse_ = options.register_buffers && io_uring_register_buffers(&ring_, empty.data(), kBufferSlots) == 0;
  const auto entry = [](void* self) -> void* {
    static_cast<UringEngine*>(self)->reap();
    return nullptr;
  };
  if (Status s = start_thread(reaper_, "kvbm-uring", entry, this); !s.ok()) return s;
  reaping_ = true;
  return {};
}

UringEngine::~UringEngine() {
  if (reaping_) {
    // Nothing is outstanding, but the last submitter may still be on its way out.
    while (submitting()) sched_yield();
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, nullptr);  // no request: the reaper ends
    enter();
    pthread_join(reaper_, nullptr);
  }
  if (ring_open_) io_uring_queue_exit(&ring_);
}

std::string UringEngine::describe() const {
  MutexLock lock(mutex_);
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
    const Buffer& b = buffers_[i];
    if (data >= b.data && bytes <= b.bytes && static_cast<size_t>(data - b.data) <= b.bytes - bytes) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

void UringEngine::submit(IoRequest* request) {
  {
    MutexLock lock(mutex_);
    waiting_.push_back(request);
  }
  pump();
}

// Submits what waits, unless someone else is at it: that one takes along what is queued here.
void UringEngine::pump() {
  std::array<IoRequest*, kBatch> batch;
  std::array<int, kBatch> fixed;
  bool mine = false;
  for (;;) {
    uint32_t n = 0;
    {
      MutexLock lock(mutex_);
      if (submitting_ && !mine) return;
      for (; n < kBatch && !waiting_.empty() && in_flight_ < limit_; ++n, ++in_flight_) {
        batch[n] = waiting_.front();
        fixed[n] = fixed_index(*batch[n]);
        waiting_.pop_front();
      }
      mine = submitting_ = n > 0;
    }
    if (n == 0) return;
    for (uint32_t i = 0; i < n; ++i) prepare(*batch[i], fixed[i]);
    enter();
  }
}

void UringEngine::prepare(IoRequest& r, int fixed) {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  while (sqe == nullptr) {  // smaller than a batch: the kernel takes what is there
    enter();
    sqe = io_uring_get_sqe(&ring_);
  }
  const auto runs = r.rest();
  if (r.op == IoRequest::Op::sync) {
    io_uring_prep_fsync(sqe, r.fd, IORING_FSYNC_DATASYNC);
  } else if (fixed >= 0) {
    // One call moves at most what a signed 32-bit count says; the rest is continued.
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
  r.handed.store(true, std::memory_order_release);
}

// Hands every prepared entry to the kernel, or ends it. EAGAIN and EBUSY mean that it is short of memory for requests or
// that completions wait for the reaper, which needs no lock of ours: both pass.
void UringEngine::enter() {
  uint32_t refusals = 0;
  while (io_uring_sq_ready(&ring_) > 0) {
    const int n = io_uring_submit(&ring_);
    if (n < 0 && n != -EAGAIN && n != -EBUSY && n != -EINTR) return take_back(-n);
    if (n > 0) {
      refusals = 0;
    } else if (++refusals < IoRequest::kTriesAtOnce) {
      sched_yield();
    } else {
      io_pause();
    }
  }
}

// Ends what the kernel refuses to look at: entries that it has not taken, which it reads at no other time than in the
// call that just failed.
void UringEngine::take_back(int error) {
  io_uring_sq& sq = ring_.sq;
  const unsigned taken = *sq.khead;
  const unsigned end = sq.sqe_tail;
  const auto request_at = [&sq](unsigned at) {
    return reinterpret_cast<IoRequest*>(static_cast<uintptr_t>(sq.sqes[at & *sq.kring_mask].user_data));
  };
  io_uring_smp_store_release(sq.ktail, taken);
  sq.sqe_head = sq.sqe_tail = taken;
  {
    MutexLock lock(mutex_);
    for (unsigned at = taken; at != end; ++at) in_flight_ -= request_at(at) != nullptr ? 1 : 0;
  }
  // Nobody prepares an entry before this returns.
  for (unsigned at = taken; at != end; ++at) {
    IoRequest* const request = request_at(at);
    if (request == nullptr) {
      ended_.store(true, std::memory_order_relaxed);
      continue;
    }
    request->error = error;
    complete(request);
  }
}

// 0 when there may be one.
int UringEngine::wait_for_one() {
  io_uring_cqe* first = nullptr;
  if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) return io_uring_wait_cqe(&ring_, &first);
  __kernel_timespec time = kLookUp;
  return io_uring_wait_cqe_timeout(&ring_, &first, &time);
}

void UringEngine::reap() {
  const MemoryWait patient;
  while (!ended_.load(std::memory_order_relaxed)) {
    if (const int error = wait_for_one(); error < 0) {
      if (error != -EINTR && error != -ETIME) io_pause();  // refused: what is in flight comes all the same
      continue;
    }
    std::array<io_uring_cqe*, kBatch> entries;
    std::array<std::pair<IoRequest*, long>, kBatch> batch;
    const unsigned n = io_uring_peek_batch_cqe(&ring_, entries.data(), kBatch);
    for (unsigned i = 0; i < n; ++i) {
      batch[i] = {static_cast<IoRequest*>(io_uring_cqe_get_data(entries[i])), entries[i]->res};
    }
    io_uring_cq_advance(&ring_, n);
    if (!handle(batch, n)) return;
  }
}

// False when the engine ends.
bool UringEngine::handle(const std::array<std::pair<IoRequest*, long>, kBatch>& batch, uint32_t n) {
  {
    MutexLock lock(mutex_);
    in_flight_ -= std::min(n, in_flight_);
  }
  bool more = true;
  // Each request is in one of these: those that have ended, that go on at once, and that go on later.
  std::array<IoRequest*, kBatch> over;
  std::array<IoRequest*, kBatch> again;
  std::array<IoRequest*, kBatch> later;
  uint32_t n_over = 0;
  uint32_t n_again = 0;
  uint32_t n_later = 0;
  for (uint32_t i = 0; i < n; ++i) {
    auto [request, answer] = batch[i];
    if (request == nullptr) {
      more = false;
    } else if (!request->handed.load(std::memory_order_acquire) || request->advance(answer)) {
      over[n_over++] = request;
    } else if (request->should_pause()) {
      later[n_later++] = request;
    } else {
      again[n_again++] = request;
    }
  }
  bool waiting = false;
  {
    MutexLock lock(mutex_);
    for (uint32_t i = 0; i < n_again; ++i) waiting_.push_back(again[i]);
    waiting = !waiting_.empty();
  }
  if (waiting) pump();
  // Last, because the completion of the last request may let the engine's owner end it.
  for (uint32_t i = 0; i < n_later; ++i) submit_later(later[i]);
  for (uint32_t i = 0; i < n_over; ++i) complete(over[i]);
  return more;
}

}  // namespace

Result<std::shared_ptr<IoEngine>> make_uring_engine(Executor& executor, const UringOptions& options) {
  auto engine = std::make_shared<UringEngine>(executor);
  if (Status s = engine->start(options); !s.ok()) return s;
  return std::shared_ptr<IoEngine>(std::move(engine));
}

}  // namespace kvbm
