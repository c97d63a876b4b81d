// Passing and lasting faults of the system under the I/O engines: a call interrupted by a signal, no memory for it at
// the moment, fewer bytes than requested, requests that ended with their thread, refused registered buffers, a refused
// ring. This program's calls to libc and liburing pass through here (the linker's --wrap, tests/CMakeLists.txt).
// A passing fault costs no transfer and no byte; a lasting one is an error of each transfer and no hang.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <liburing.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/crypto/random.h"
#include "base/io/os_file.h"
#include "support/disk_world.h"
#include "support/inline_executor.h"
#include "support/temp_dir.h"

namespace kvbm::test {
namespace {

// Faults to inject into calls. Each one that a call meets is counted in `met`.
struct Meddling {
  std::atomic<int> error{0};  // errno of the next `times` calls
  std::atomic<int> times{0};
  std::atomic<int64_t> lasting_ns{0};  // or of all calls for so long, from the first one on that meets it
  std::atomic<int64_t> until_ns{0};    // all calls before this time of the steady clock meet it
  std::atomic<size_t> at_most{0};      // bytes that the next `shorten` transfers move; 0: all
  std::atomic<int> shorten{0};
  std::atomic<int> submit_error{0};  // errno of the next `submit_times` submissions to a ring
  std::atomic<int> submit_times{0};
  std::atomic<int> register_error{0};  // of buffer tables
  std::atomic<int> update_error{0};    // of buffers
  std::atomic<uint32_t> one_in{0};     // of transfers meets one of EINTR, EAGAIN, too few bytes, by chance
  std::atomic<uint64_t> dice{1};
  std::atomic<uint64_t> met{0};
};
Meddling meddling;
constexpr int64_t kForGood = INT64_MAX;

// Reads in the ring, and the threads that submitted them.
struct Watch {
  std::mutex mutex;
  std::map<uint64_t, uint64_t> reads;  // bytes by request
  uint64_t most = 0;                   // bytes at once
  std::set<std::thread::id> submitters;
  void begin() {
    const std::lock_guard lock(mutex);
    reads.clear();
    submitters.clear();
    most = 0;
  }
  void submits(const io_uring& ring) {
    const std::lock_guard lock(mutex);
    submitters.insert(std::this_thread::get_id());
    for (unsigned at = *ring.sq.khead; at != ring.sq.sqe_tail; ++at) {
      const io_uring_sqe& entry = ring.sq.sqes[at & *ring.sq.kring_mask];
      if (entry.user_data == 0) continue;
      if (entry.opcode == IORING_OP_READ_FIXED) reads[entry.user_data] = entry.len;
      if (entry.opcode != IORING_OP_READV) continue;
      const auto* const runs = reinterpret_cast<const iovec*>(static_cast<uintptr_t>(entry.addr));
      reads[entry.user_data] = std::accumulate(runs, runs + entry.len, uint64_t{0},
                                               [](uint64_t sum, const iovec& run) { return sum + run.iov_len; });
    }
    const uint64_t now = std::accumulate(reads.begin(), reads.end(), uint64_t{0},
                                         [](uint64_t sum, const auto& read) { return sum + read.second; });
    most = std::max(most, now);
  }
  void ended(uint64_t request) {
    const std::lock_guard lock(mutex);
    reads.erase(request);
  }
};
Watch watched;

int64_t steady_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

bool take_one(std::atomic<int>& left) {
  for (int n = left.load(); n > 0;) {
    if (left.compare_exchange_weak(n, n - 1)) return true;
  }
  return false;
}

uint64_t roll() {
  uint64_t x = meddling.dice.fetch_add(0x9E3779B97F4A7C15ULL);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Returns whether the shortage lasts. It begins with the first call, which on a busy machine may come long after the
// test's request.
bool is_short() {
  const int64_t now = steady_ns();
  if (const int64_t lasting = meddling.lasting_ns.exchange(0); lasting != 0) {
    meddling.until_ns = lasting == kForGood ? kForGood : now + lasting;
  }
  return now < meddling.until_ns;
}

// Returns errno for this call, or 0.
int next_error() {
  int error = take_one(meddling.times) || is_short() ? meddling.error.load() : 0;
  if (const uint32_t one_in = meddling.one_in; error == 0 && one_in != 0 && roll() % one_in == 0) {
    error = roll() % 2 == 0 ? EINTR : EAGAIN;
  }
  if (error != 0) ++meddling.met;
  return error;
}

// Returns how many of the `n` bytes that a transfer has moved it reports.
long shortened(long n) {
  size_t most = take_one(meddling.shorten) ? meddling.at_most.load() : 0;
  if (const uint32_t one_in = meddling.one_in; n > 0 && one_in != 0 && roll() % one_in == 0) {
    most = 1 + roll() % static_cast<uint64_t>(n);
  }
  if (most == 0 || n <= static_cast<long>(most)) return n;
  ++meddling.met;
  return static_cast<long>(most);
}

template <class Call>
auto meddled(Call&& call) -> decltype(call()) {
  if (const int error = next_error(); error != 0) {
    errno = error;
    return -1;
  }
  return call();
}

// Ends all faults with the test.
struct Calm {
  ~Calm() {
    meddling.times = meddling.shorten = meddling.submit_times = meddling.register_error = meddling.update_error = 0;
    meddling.lasting_ns = meddling.until_ns = 0;
    meddling.one_in = 0;
    meddling.met = 0;
  }
};

}  // namespace
}  // namespace kvbm::test

namespace {
using kvbm::test::meddled;
using kvbm::test::meddling;
using kvbm::test::next_error;
using kvbm::test::shortened;
using kvbm::test::take_one;
using kvbm::test::watched;
}  // namespace

extern "C" {
ssize_t __real_preadv(int fd, const iovec* runs, int n, off_t offset);
ssize_t __wrap_preadv(int fd, const iovec* runs, int n, off_t offset) {
  return meddled([&] { return shortened(__real_preadv(fd, runs, n, offset)); });
}
ssize_t __real_pwritev(int fd, const iovec* runs, int n, off_t offset);
ssize_t __wrap_pwritev(int fd, const iovec* runs, int n, off_t offset) {
  return meddled([&] { return shortened(__real_pwritev(fd, runs, n, offset)); });
}
ssize_t __real_pread(int fd, void* data, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void* data, size_t n, off_t offset) {
  return meddled([&] { return shortened(__real_pread(fd, data, n, offset)); });
}
ssize_t __real_pwrite(int fd, const void* data, size_t n, off_t offset);
ssize_t __wrap_pwrite(int fd, const void* data, size_t n, off_t offset) {
  return meddled([&] { return shortened(__real_pwrite(fd, data, n, offset)); });
}
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd) {
  return meddled([&] { return __real_fdatasync(fd); });
}
int __real_fsync(int fd);
int __wrap_fsync(int fd) {
  return meddled([&] { return __real_fsync(fd); });
}
int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes) {
  return meddled([&] { return __real_ftruncate(fd, bytes); });
}
int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return meddled([&] { return __real_fallocate(fd, mode, offset, bytes); });
}
int __real_openat(int fd, const char* path, int flags, ...);
int __wrap_openat(int fd, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return meddled([&] { return __real_openat(fd, path, flags, mode); });
}
int __real_io_uring_submit(io_uring* ring);
int __wrap_io_uring_submit(io_uring* ring) {
  watched.submits(*ring);
  if (!take_one(meddling.submit_times)) return __real_io_uring_submit(ring);
  ++meddling.met;
  return -meddling.submit_error;
}
unsigned __real_io_uring_peek_batch_cqe(io_uring* ring, io_uring_cqe** entries, unsigned most);
unsigned __wrap_io_uring_peek_batch_cqe(io_uring* ring, io_uring_cqe** entries, unsigned most) {
  const unsigned n = __real_io_uring_peek_batch_cqe(ring, entries, most);
  for (unsigned i = 0; i < n; ++i) {
    if (entries[i]->user_data == 0) continue;
    watched.ended(entries[i]->user_data);
    const int error = next_error();
    entries[i]->res = error != 0 ? -error : static_cast<int>(shortened(entries[i]->res));
  }
  return n;
}
int __real_io_uring_register_buffers(io_uring* ring, const iovec* buffers, unsigned n);
int __wrap_io_uring_register_buffers(io_uring* ring, const iovec* buffers, unsigned n) {
  const int error = meddling.register_error;
  return error != 0 ? -error : __real_io_uring_register_buffers(ring, buffers, n);
}
int __real_io_uring_register_buffers_update_tag(io_uring* ring, unsigned at, const iovec* buffers, const __u64* tags,
                                                unsigned n);
int __wrap_io_uring_register_buffers_update_tag(io_uring* ring, unsigned at, const iovec* buffers, const __u64* tags,
                                                unsigned n) {
  const int error = meddling.update_error;
  return error != 0 ? -error : __real_io_uring_register_buffers_update_tag(ring, at, buffers, tags, n);
}
}

namespace kvbm::test {
namespace {

struct Engine {
  const char* name;
  IoEngineChoice choice;
  bool direct;
};

class IoEngines : public testing::TestWithParam<Engine> {
 protected:
  static constexpr size_t kBytes = 40 * kIoAlign;

  void SetUp() override {
    if (make()) return;
    GTEST_SKIP() << "no io_uring here";
  }
  bool make() {
    OsFileOptions options;
    options.engine = GetParam().choice;
    log_.set_sink(&say, &said_, LogLevel::warning);
    options.log = &log_;
    auto made = make_os_file_system(executor_, options);
    if (!made.ok()) return false;
    files_ = std::move(made).value();
    directory_ = std::move(files_->open_directory(temp_.path() + "/tier", true)).value();
    file_ = std::move(directory_->open("segment", OpenMode::create, GetParam().direct)).value();
    memory_ = std::move(files_->staging(2 * kBytes)).value();
    SeededRandom(7).fill({memory_.get(), kBytes});
    return true;
  }
  [[nodiscard]] bool is_uring() const { return GetParam().choice == IoEngineChoice::uring; }
  // Several runs, so that a continuation begins in the middle of one.
  [[nodiscard]] static std::vector<IoRun> runs(std::byte* at) {
    return {{at, 9 * kIoAlign}, {at + 9 * kIoAlign, kIoAlign}, {at + 10 * kIoAlign, kBytes - 10 * kIoAlign}};
  }
  Status write() {
    Status out(Code::internal, "not run");
    bool ended = false;
    file_->write(kIoAlign, runs(memory_.get()), [&](Result<size_t> moved) {
      out = moved.ok() && moved.value() != kBytes ? Status(Code::internal, "short") : moved.status();
      ended = true;
    });
    EXPECT_TRUE(executor_.run_until([&] { return ended; }, soon()));
    return out;
  }
  // Reads back what was written, and compares.
  Status read(bool fixed = false) {
    Status out(Code::internal, "not run");
    bool ended = false;
    std::byte* const at = memory_.get() + kBytes;
    std::memset(at, 0, kBytes);
    file_->read(kIoAlign, fixed ? std::vector<IoRun>{{at, kBytes}} : runs(at), [&](Result<size_t> moved) {
      out = moved.ok() && moved.value() != kBytes ? Status(Code::internal, "short") : moved.status();
      ended = true;
    });
    EXPECT_TRUE(executor_.run_until([&] { return ended; }, soon()));
    if (out.ok() && std::memcmp(at, memory_.get(), kBytes) != 0) return Status(Code::damaged, "other bytes");
    return out;
  }
  Status sync() {
    Status out(Code::internal, "not run");
    bool ended = false;
    file_->sync([&](Status status) {
      out = std::move(status);
      ended = true;
    });
    EXPECT_TRUE(executor_.run_until([&] { return ended; }, soon()));
    return out;
  }
  // Returns a time by which any transfer has ended. One that fails is retried for a second of pauses at least; on a
  // busy machine each pause lasts much longer.
  [[nodiscard]] uint64_t soon() const { return executor_.clock().now_ns() + 120'000'000'000; }

  static void say(void* said, const LogMessage& message) {
    static_cast<std::vector<std::string>*>(said)->emplace_back(message.text);
  }

  Calm calm_;
  std::vector<std::string> said_;  // by the ring's thread, before the completions that follow
  Log log_;
  TempDir temp_;
  InlineExecutor executor_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<File> file_;
  std::shared_ptr<std::byte[]> memory_;
};

void meet(int error, int times) {
  meddling.error = error;
  meddling.times = times;
}
void meet_for(int error, int64_t ns) {
  meddling.error = error;
  meddling.lasting_ns = ns;
}

#define EXPECT_FINE(status)               \
  do {                                    \
    const Status s_ = status;             \
    EXPECT_TRUE(s_.ok()) << s_.message(); \
  } while (0)

TEST_P(IoEngines, what_a_signal_cuts_off_is_made_again) {
  meet(EINTR, 30);
  EXPECT_FINE(write());
  meet(EINTR, 30);
  EXPECT_FINE(read());
  meet(EINTR, 30);
  EXPECT_FINE(sync());
  EXPECT_EQ(meddling.met, 90U);
}

TEST_P(IoEngines, a_shortage_that_passes_costs_no_transfer_and_few_calls) {
  for (int kind = 0; kind < 3; ++kind) {
    meddling.met = 0;
    meet_for(EAGAIN, 150'000'000);
    EXPECT_FINE(kind == 0 ? write() : kind == 1 ? read() : sync());
    EXPECT_GT(meddling.met, 0U);
    EXPECT_LT(meddling.met, 400U);
  }
}

TEST_P(IoEngines, a_shortage_that_stays_is_told) {
  meet_for(EAGAIN, kForGood);
  EXPECT_EQ(write().code(), Code::io_error);
  meddling.until_ns = 0;
  EXPECT_FINE(write());
}

TEST_P(IoEngines, what_moved_in_part_is_moved_whole) {
  for (const size_t most : {kIoAlign, 3 * kIoAlign + 512, kIoAlign + 1, 9 * kIoAlign, kBytes - 1}) {
    SCOPED_TRACE(most);
    meddling.at_most = most;
    meddling.shorten = 30;
    EXPECT_FINE(write());
    meddling.shorten = 0;
    EXPECT_FINE(read());
    meddling.shorten = 30;
    EXPECT_FINE(read(true));
    EXPECT_FINE(read());
    meddling.shorten = 0;
  }
}

TEST_P(IoEngines, the_blocking_calls_go_on_too) {
  const auto each = [&](const std::function<void()>& before) {
    before();
    EXPECT_FINE(file_->allocate(8 * kBytes));
    before();
    EXPECT_FINE(file_->write_now(kIoAlign, {memory_.get(), kBytes}));
    before();
    EXPECT_FINE(file_->sync_now());
    before();
    auto got = file_->read_now(kIoAlign, {memory_.get() + kBytes, kBytes});
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(got.value(), kBytes);
    EXPECT_EQ(std::memcmp(memory_.get(), memory_.get() + kBytes, kBytes), 0);
    before();
    // Into memory that is not aligned, and beyond the end.
    got = file_->read_now(kIoAlign + 77, {memory_.get() + kBytes + 1, 2 * kIoAlign});
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(got.value(), 2 * kIoAlign);
    EXPECT_EQ(std::memcmp(memory_.get() + 77, memory_.get() + kBytes + 1, 2 * kIoAlign), 0);
    before();
    EXPECT_FINE(file_->truncate(kBytes + 100));
    before();
    got = file_->read_now(0, {memory_.get() + kBytes, kBytes});
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got.value(), kBytes);
    before();
    got = file_->read_now(kBytes, {memory_.get() + kBytes, kBytes});
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got.value(), 100U);
    before();
    EXPECT_FINE(directory_->sync());
    before();
    EXPECT_TRUE(directory_->list().ok());
    before();
    EXPECT_TRUE(directory_->open("segment", OpenMode::read_write, GetParam().direct).ok());
  };
  each([] { meet(EINTR, 20); });
  each([] { meet(EAGAIN, 20); });
  for (const size_t most : {3 * kIoAlign + 512, kIoAlign + 1, size_t{kBytes - 1}}) {
    SCOPED_TRACE(most);
    each([most] {
      meddling.at_most = most;
      meddling.shorten = 5;
    });
  }
  EXPECT_GT(meddling.met, 300U);
}

// The kernel's workers belong to the thread that submitted.
TEST_P(IoEngines, what_a_thread_asked_for_before_it_ended_is_done) {
  meet(ECANCELED, is_uring() ? 20 : 0);
  EXPECT_FINE(write());
  EXPECT_FINE(sync());
  meddling.times = 0;
  for (int i = 0; i < 100; ++i) {
    std::atomic<int> ended{0};
    std::thread([&] {
      file_->write(kIoAlign, runs(memory_.get()), [&](const Result<size_t>& moved) {
        EXPECT_FINE(moved.status());
        ++ended;
      });
      file_->sync([&](const Status& status) {
        EXPECT_FINE(status);
        ++ended;
      });
    }).join();
    ASSERT_TRUE(executor_.run_until([&] { return ended == 2; }, soon()));
  }
}

TEST_P(IoEngines, submissions_that_are_put_off_go_through) {
  if (!is_uring()) GTEST_SKIP() << "no ring";
  for (const int error : {EAGAIN, EBUSY, EINTR}) {
    meddling.submit_error = error;
    meddling.submit_times = 40;
    EXPECT_FINE(write());
    EXPECT_FINE(read());
  }
  EXPECT_EQ(meddling.met, 120U);
}

// Some disks report nothing before they have finished all given requests. Also, the kernel finishes its work on the
// requesting thread, which may be in a system call by then.
TEST_P(IoEngines, one_thread_gives_the_kernel_a_part_of_what_waits_at_a_time) {
  if (!is_uring()) GTEST_SKIP() << "no ring";
  constexpr size_t kEach = size_t{1} << 20;
  constexpr int kReads = 64;
  ASSERT_TRUE(file_->allocate(kReads * kEach).ok());
  const auto memory = std::move(files_->staging(kReads * kEach)).value();
  watched.begin();
  int ended = 0;
  for (int i = 0; i < kReads; ++i) {
    const IoRun run{memory.get() + i * kEach, kEach};
    file_->read(i * kEach, {&run, 1}, [&](const Result<size_t>& moved) { ended += moved.ok() ? 1 : 0; });
  }
  EXPECT_TRUE(executor_.run_until([&] { return ended == kReads; }, soon()));
  const std::lock_guard lock(watched.mutex);
  EXPECT_LE(watched.most, 9 * kEach);
  EXPECT_EQ(watched.submitters.size(), 1U);
  EXPECT_FALSE(watched.submitters.contains(std::this_thread::get_id()));
}

TEST_P(IoEngines, a_ring_that_is_refused_costs_no_transfer_and_is_told_once) {
  if (!is_uring()) GTEST_SKIP() << "no ring";
  EXPECT_FINE(write());
  meddling.submit_error = EPERM;
  meddling.submit_times = 1'000'000;
  int fine = 0;
  for (int i = 0; i < 300; ++i) {  // more than fit into the ring, if they stayed there
    file_->read(kIoAlign, runs(memory_.get() + kBytes),
                [&](const Result<size_t>& moved) { fine += moved.ok() ? 1 : 0; });
  }
  EXPECT_TRUE(executor_.run_until([&] { return fine == 300; }, soon()));
  EXPECT_FINE(sync());
  EXPECT_FINE(write());
  EXPECT_FINE(read());
  EXPECT_NE(files_->describe().find("pread"), std::string::npos) << files_->describe();
  ASSERT_EQ(said_.size(), 1U);
  for (const char* const part : {"io_uring_enter", "(errno 1)", "pread", "kvbm doctor"}) {
    EXPECT_NE(said_[0].find(part), std::string::npos) << said_[0];
  }
  meddling.submit_times = 0;  // the fallback is permanent
  EXPECT_FINE(write());
  EXPECT_FINE(read());
  EXPECT_EQ(said_.size(), 1U);
  memory_.reset();
  file_.reset();
  directory_.reset();
  files_.reset();
}

// A ring that can be made but not used is not used at all.
TEST_P(IoEngines, a_ring_that_is_refused_at_once_is_not_used) {
  if (!is_uring()) GTEST_SKIP() << "no ring";
  memory_.reset();
  file_.reset();
  directory_.reset();
  files_.reset();
  meddling.submit_error = ENOSYS;
  meddling.submit_times = 1'000'000;
  EXPECT_FALSE(make());
  OsFileOptions options;
  options.log = &log_;
  auto made = make_os_file_system(executor_, options);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_TRUE(said_.empty());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(made.value()->open_directory(temp_.path() + "/other", true).ok());
  ASSERT_EQ(said_.size(), 1U);
  for (const char* const part : {"io_uring_enter", "(errno 38)", "pread", "kvbm doctor"}) {
    EXPECT_NE(said_[0].find(part), std::string::npos) << said_[0];
  }
}

// If the ring does not know a kind of request, a plain call is made instead, which reports the error if there is one.
TEST_P(IoEngines, what_the_ring_does_not_do_is_done_by_a_call) {
  if (!is_uring()) GTEST_SKIP() << "no ring";
  for (const int error : {EOPNOTSUPP, EINVAL, EPERM, ENOSYS}) {
    meet(error, GetParam().direct ? 0 : 1);  // direct writes do not go through the ring
    EXPECT_FINE(write());
    meet(error, 1);
    EXPECT_FINE(read());
    meet(error, 1);
    EXPECT_FINE(sync());
  }
  EXPECT_GE(meddling.met, 8U);
  meet(EPERM, 2);
  EXPECT_EQ(sync().code(), Code::not_permitted);
}

TEST_P(IoEngines, buffers_that_are_refused_are_moved_unregistered) {
  if (!is_uring()) GTEST_SKIP() << "no ring";
  EXPECT_NE(files_->describe().find("1 registered"), std::string::npos) << files_->describe();
  for (const int error : {ENOMEM, EPERM}) {
    meddling.update_error = error;  // from some time on
    const auto more = files_->staging(kBytes);
    ASSERT_TRUE(more.ok());
    EXPECT_NE(files_->describe().find("refused"), std::string::npos) << files_->describe();
    memory_ = std::move(files_->staging(2 * kBytes)).value();
    SeededRandom(8).fill({memory_.get(), kBytes});
    EXPECT_FINE(write());
    EXPECT_FINE(read(true));
    meddling.update_error = 0;
    memory_ = std::move(files_->staging(2 * kBytes)).value();  // in the place of one that could not be taken out
    SeededRandom(9).fill({memory_.get(), kBytes});
    EXPECT_FINE(write());
    EXPECT_FINE(read(true));
    meddling.register_error = error;  // from the start
    memory_.reset();
    file_.reset();
    ASSERT_TRUE(make());
    EXPECT_NE(files_->describe().find("not registered"), std::string::npos) << files_->describe();
    EXPECT_FINE(write());
    EXPECT_FINE(read(true));
    meddling.register_error = 0;
    memory_.reset();
    file_.reset();
    ASSERT_TRUE(make());
  }
}

// A disk tier in which every transfer may meet passing faults: everything is stored and read back.
TEST_P(IoEngines, a_disk_tier_over_calls_that_are_cut_off_loses_nothing) {
  constexpr uint64_t kRecordBytes = 70'000;
  constexpr uint64_t kRecords = 60;
  FamilyTable families;
  SystemRandom random;
  tier::disk::DiskTierOptions options;
  options.path = temp_.path() + "/disk";
  options.capacity_bytes = uint64_t{24} << 20;
  options.segment_bytes = uint64_t{2} << 20;
  options.direct = GetParam().direct;
  meddling.one_in = 4;
  for (int life = 0; life < 2; ++life) {
    auto opened = tier::disk::DiskTier::open(options, *files_, executor_, families, random, nullptr, 1);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    const std::unique_ptr<tier::disk::DiskTier> tier = std::move(opened).value();
    const FamilyId family = families.intern(family_of(1)).value();
    for (uint64_t n = 1; life == 0 && n <= kRecords; ++n) {
      const TestRecord record(n, kRecordBytes, family_of(1));
      auto batch = std::make_unique<tier::PutBatch>();
      batch->items.push_back(
          {.id = {key_of(n), family}, .parent = {}, .head = record.head, .payload = record.payload()});
      batch->durable = n % 8 == 0;
      Code code = Code::again;
      batch->done = [&](tier::PutBatch& b) { code = b.status[0]; };
      tier->put(std::move(batch));
      ASSERT_TRUE(executor_.run_until([&] { return code != Code::again; }, soon()));
      EXPECT_EQ(code, Code::ok) << n;
    }
    for (uint64_t n = 1; n <= kRecords; ++n) {
      const TestRecord want(n, kRecordBytes, family_of(1));
      const tier::disk::AlignedBuffer head(8192);
      const tier::disk::AlignedBuffer payload(kRecordBytes);
      auto batch = std::make_unique<tier::GetBatch>();
      tier::GetItem item;
      item.id = {key_of(n), family};
      item.head = head.span();
      item.payload = payload.span();
      batch->items.push_back(std::move(item));
      Code code = Code::again;
      batch->done = [&](tier::GetBatch& b) { code = b.status[0]; };
      tier->get(std::move(batch));
      ASSERT_TRUE(executor_.run_until([&] { return code != Code::again; }, soon()));
      EXPECT_EQ(code, Code::ok) << n;
      EXPECT_EQ(std::memcmp(payload.data(), want.memory.data(), kRecordBytes), 0) << n;
    }
    bool closed = false;
    tier->shutdown([&] { closed = true; });
    ASSERT_TRUE(executor_.run_until([&] { return closed; }, soon()));
  }
  EXPECT_GT(meddling.met, 100U);
}

INSTANTIATE_TEST_SUITE_P(all, IoEngines,
                         testing::Values(Engine{"uring_direct", IoEngineChoice::uring, true},
                                         Engine{"uring_buffered", IoEngineChoice::uring, false},
                                         Engine{"pread_direct", IoEngineChoice::pread, true},
                                         Engine{"pread_buffered", IoEngineChoice::pread, false}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace kvbm::test
