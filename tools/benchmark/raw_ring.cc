#include "benchmark/raw_ring.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "benchmark/statistics.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kMostThreads = 16;

Status refused(const char* what, int error) { return {Code::io_error, what, std::strerror(error)}; }

// Memory of all requests, faulted in, in huge pages if the system gives them. Small pages cause more and smaller
// device requests.
class Buffers {
 public:
  explicit Buffers(uint64_t bytes) : bytes_(bytes + kHugePage) {
    void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return;
    mapping_ = p;
    const auto address = reinterpret_cast<uintptr_t>(p);
    data_ = static_cast<char*>(p) + ((address + kHugePage - 1) / kHugePage * kHugePage - address);
    (void)::madvise(data_, bytes, MADV_HUGEPAGE);
    std::memset(data_, 0x3C, bytes);
  }
  ~Buffers() {
    if (mapping_ != nullptr) ::munmap(mapping_, bytes_);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  [[nodiscard]] char* data() const { return data_; }

 private:
  static constexpr uint64_t kHugePage = 2 << 20;
  uint64_t bytes_;
  void* mapping_ = nullptr;
  char* data_ = nullptr;
};

// Copies completed requests in the order of their completion, on a separate thread.
class Delivery {
 public:
  Delivery(const RawLoad& load, const char* memory)
      : load_(load),
        memory_(memory),
        bytes_(load.deliver_after == 0 ? 0 : load.request_bytes - load.deliver_after),
        target_(bytes_ * load.requests),
        came_(bytes_ == 0 ? 0 : load.requests) {
    if (bytes_ != 0 && target_.data() != nullptr) thread_ = std::thread([this] { run(); });
  }
  ~Delivery() {
    if (thread_.joinable()) give_up();
    finish();
  }
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // Returns false if there is no memory for the copies.
  [[nodiscard]] bool ready() const noexcept { return bytes_ == 0 || thread_.joinable(); }
  // Reports a completed request. Thread: any.
  void came(uint64_t request) {
    if (!thread_.joinable()) return;
    came_[n_took_.fetch_add(1, std::memory_order_relaxed)].store(request + 1, std::memory_order_release);
    ring();
  }
  // Waits for the last copy.
  void finish() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  static constexpr uint64_t kLeaf = 64 << 10;

  void ring() {
    bell_.fetch_add(1, std::memory_order_release);
    bell_.notify_one();
  }
  // Ends the wait for requests. After an error, not all of them complete.
  void give_up() {
    over_.store(true, std::memory_order_release);
    ring();
  }

  void run() {
    for (const std::atomic<uint64_t>& slot : came_) {
      uint64_t request = 0;
      for (;;) {
        const uint32_t rung = bell_.load(std::memory_order_acquire);
        request = slot.load(std::memory_order_acquire);
        if (request != 0) break;
        if (over_.load(std::memory_order_acquire)) return;
        bell_.wait(rung, std::memory_order_acquire);
      }
      copy(request - 1);
    }
  }

  void copy(uint64_t request) {
    const auto* from =
        reinterpret_cast<const std::byte*>(memory_ + request * load_.request_bytes + load_.deliver_after);
    auto* to = reinterpret_cast<std::byte*>(target_.data() + request * bytes_);
    for (uint64_t at = 0; at < bytes_; at += kLeaf) {
      hash_ ^= codec::copy_hashed(to + at, from + at, std::min(kLeaf, bytes_ - at), codec::CopyHint::streaming,
                                  codec::CopyOrder::later);
    }
    codec::order_copies();
  }

  const RawLoad load_;
  const char* const memory_;
  const uint64_t bytes_;
  const Buffers target_;
  std::vector<std::atomic<uint64_t>> came_;  // the request, plus one; 0: none yet
  std::atomic<uint64_t> n_took_{0};
  std::atomic<uint32_t> bell_{0};
  std::atomic<bool> over_{false};
  uint64_t hash_ = 0;  // hash of all leaves: computed, but not compared
  std::thread thread_;
};

// Keeps `depth` requests in flight until all are done.
class Pump {
 public:
  Pump(io_uring& ring, int fd, const RawLoad& load, char* memory, Delivery& delivery)
      : ring_(ring), fd_(fd), load_(load), memory_(memory), delivery_(delivery) {}

  Status run() {
    const auto depth = static_cast<unsigned>(std::min<uint64_t>(load_.depth, load_.requests));
    while (sent_ < depth) queue();
    while (done_ < load_.requests) {
      const int sent = io_uring_submit_and_wait(&ring_, 1);
      if (sent < 0) return refused("io_uring_submit", -sent);
      io_uring_cqe* completion = nullptr;
      while (io_uring_peek_cqe(&ring_, &completion) == 0) {
        const int result = completion->res;
        const auto request = reinterpret_cast<uint64_t>(io_uring_cqe_get_data(completion));
        io_uring_cqe_seen(&ring_, completion);
        if (result < 0) return refused("raw I/O", -result);
        if (static_cast<uint64_t>(result) != load_.request_bytes) return refused("raw I/O was cut short", EIO);
        ++done_;
        delivery_.came(request);
        if (sent_ < load_.requests) queue();
      }
    }
    return {};
  }

 private:
  void queue() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const auto bytes = static_cast<unsigned>(load_.request_bytes);
    const uint64_t request = sent_++;
    const uint64_t at = request * load_.request_bytes;
    char* buffer = memory_ + at;
    if (load_.registered) {
      load_.write ? io_uring_prep_write_fixed(entry, fd_, buffer, bytes, at, 0)
                  : io_uring_prep_read_fixed(entry, fd_, buffer, bytes, at, 0);
    } else {
      load_.write ? io_uring_prep_write(entry, fd_, buffer, bytes, at)
                  : io_uring_prep_read(entry, fd_, buffer, bytes, at);
    }
    io_uring_sqe_set_data(entry, reinterpret_cast<void*>(request));
  }

  io_uring& ring_;
  const int fd_;
  const RawLoad load_;
  char* const memory_;
  Delivery& delivery_;
  uint64_t sent_ = 0;
  uint64_t done_ = 0;
};

// Runs pread or pwrite on threads, if no ring can be made.
Result<RawTime> run_on_threads(int fd, const RawLoad& load, char* memory, Delivery& delivery) {
  const auto count = std::min<uint64_t>(load.depth, kMostThreads);
  std::vector<std::thread> threads;
  std::atomic<uint64_t> next{0};
  std::atomic<int> error{0};
  const Stopwatch watch;
  for (uint64_t t = 0; t < count; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; (i = next.fetch_add(1)) < load.requests;) {
        const auto at = static_cast<off_t>(i * load.request_bytes);
        char* const buffer = memory + at;
        const ssize_t n =
            load.write ? ::pwrite(fd, buffer, load.request_bytes, at) : ::pread(fd, buffer, load.request_bytes, at);
        if (n != static_cast<ssize_t>(load.request_bytes)) error.store(n < 0 ? errno : EIO);
        delivery.came(i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  delivery.finish();
  if (load.durable && error.load() == 0 && ::fdatasync(fd) != 0) error.store(errno);
  const double seconds = watch.seconds();
  if (error.load() != 0) return refused("raw I/O", error.load());
  return RawTime{seconds, RawPath::threads};
}

}  // namespace

Result<RawFile> RawFile::make(const std::string& directory, uint64_t bytes) {
  const std::string path = directory + "/raw";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
  if (fd < 0) return refused("the raw file cannot be opened with O_DIRECT", errno);
  RawFile file(path, fd);
  const int failed = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (failed != 0) return refused("no room for the raw file", failed);
  return file;
}

RawFile::~RawFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(path_.c_str());
}

Result<RawTime> RawFile::run(const RawLoad& load) const {
  const Buffers buffers(load.requests * load.request_bytes);
  Delivery delivery(load, buffers.data());
  if (buffers.data() == nullptr || !delivery.ready()) return Status(Code::no_memory, "no memory for raw I/O");
  io_uring ring;
  const int made = io_uring_queue_init(load.depth, &ring, 0);
  if (made < 0) return run_on_threads(fd_, load, buffers.data(), delivery);
  Status status;
  double seconds = 0;
  RawLoad effective = load;
  if (load.registered) {
    const iovec all{buffers.data(), load.requests * load.request_bytes};
    effective.registered = io_uring_register_buffers(&ring, &all, 1) == 0;
  }
  const Stopwatch watch;
  status = Pump(ring, fd_, effective, buffers.data(), delivery).run();
  if (status.ok()) delivery.finish();
  if (status.ok() && load.durable && ::fdatasync(fd_) != 0) status = refused("the raw file could not be synced", errno);
  seconds = watch.seconds();
  io_uring_queue_exit(&ring);
  if (!status.ok()) return status;
  return RawTime{seconds, effective.registered ? RawPath::registered_ring : RawPath::ring};
}

}  // namespace kvbm::benchmark
