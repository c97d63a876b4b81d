// The data plane beneath os_file: an engine moves requests and posts their completions. Private to
// base; other layers see base/file.h.
//
// A request is owned by the engine from submit until its completion runs; requests are recycled, so
// a steady load does not allocate. Interrupted and short transfers are continued here, once for
// both engines (IoRequest::advance): at once, or after a pause where the system says again and again
// that it is short of something.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"

namespace kvbm {

// What requests are made to. It outlives them.
struct IoFile {
  int fd = -1;
  uint64_t device = 0;  // st_dev: what waits for one does not hold up what is for another
  bool direct = false;
  std::string path;
};

struct IoRequest {
  static constexpr uint32_t kTriesAtOnce = 8;
  enum class Op { read, write, sync };
  Op op = Op::read;
  int fd = -1;
  uint64_t device = 0;         // that the file lies on
  bool direct = false;         // goes on at multiples of kIoAlign only
  bool retried = false;        // the kernel said EAGAIN; io_uring then takes a worker thread
  int error = 0;               // errno of the end, 0 for success
  uint32_t attempts = 0;       // tries in a row that moved nothing
  uint64_t offset = 0;         // of the bytes that are still to move
  size_t first = 0;            // the first run that is not yet moved whole
  size_t moved = 0;
  size_t total = 0;
  size_t in_flight = 0;        // bytes that the engine counts as with the kernel
  std::vector<iovec> runs;
  const std::string* path = nullptr;  // the File outlives the request
  IoDone done;
  UniqueFunction<void(Status)> synced;
  // Takes the kernel's answer (bytes, or a negative errno); true when the request has ended.
  bool advance(long answer) noexcept;
  // Of one that has not: the next try should wait, for others have met the same shortage at once.
  [[nodiscard]] bool should_pause() const noexcept { return attempts > kTriesAtOnce; }
  [[nodiscard]] size_t left() const noexcept { return total - moved; }
  // The runs of the next transfer, at most IOV_MAX.
  [[nodiscard]] std::span<const iovec> rest() const noexcept;
};

class IoEngine {
 public:
  explicit IoEngine(Executor& executor) : executor_(executor) {}
  virtual ~IoEngine() = default;  // nothing outstanding; not on a thread of the engine

  // Thread: any. None of these fails: what cannot be done is said in the completion.
  void transfer(IoRequest::Op op, const IoFile& file, uint64_t offset, std::span<const IoRun> runs, IoDone done);
  void sync(const IoFile& file, UniqueFunction<void(Status)> done);

  // Goes on with a request of another engine, where that stands. It is this one's from then on.
  void take_over(IoRequest* request) { submit(request); }

  // The engine that writes to direct files are for.
  [[nodiscard]] virtual IoEngine& for_direct_writes() noexcept { return *this; }
  // Registers [data, data + bytes) if the engine can; the index to unregister, or -1.
  virtual int register_buffer(std::byte* data, size_t bytes) = 0;
  virtual void unregister_buffer(int index) = 0;
  [[nodiscard]] virtual std::string describe() const = 0;

 protected:
  virtual void submit(IoRequest* request) = 0;
  // Posts the completion of a request that has ended.
  void complete(IoRequest* request);
  // Submits a request once more, after a pause.
  void submit_later(IoRequest* request);

 private:
  IoRequest* take();
  void finish(IoRequest* request);

  Executor& executor_;
  Mutex pool_mutex_;
  std::vector<std::unique_ptr<IoRequest>> pool_ KVBM_GUARDED_BY(pool_mutex_);
};

// "io_uring_enter: Operation not permitted (errno 1)"
std::string ring_refusal(const char* call, int error);
// Says that files are read and written without io_uring, and why.
void warn_of_ring(const Log& log, const std::string& why);

struct UringOptions {
  uint32_t entries = 256;      // of the submission ring; four times as many may be in flight
  bool register_buffers = true;
  uint32_t pread_threads = 4;  // once the ring is refused
  const Log* log = nullptr;    // told once of that
};

// Code::unsupported, with the call that failed and its errno, where io_uring is missing or forbidden: a ring is made and
// completes a no-op. Where the kernel refuses the ring later on, at any call (a process may confine itself), what it was
// given and all that follows is done by pread and pwrite on threads, and the log says so once.
Result<std::shared_ptr<IoEngine>> make_uring_engine(Executor& executor, const UringOptions& options);
// pread and pwrite on `threads` threads.
Result<std::shared_ptr<IoEngine>> make_pread_engine(Executor& executor, uint32_t threads);

}  // namespace kvbm
