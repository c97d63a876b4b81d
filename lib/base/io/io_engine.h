// The data plane beneath os_file: an engine moves requests and posts their completions. Private to base; other layers
// see base/io/file.h.
//
// A request is owned by the engine from submit until its completion runs; requests are recycled, so a steady load does
// not allocate. Interrupted and short transfers are continued here, once for both engines (IoRequest::advance): at
// once, or after a pause if the system keeps reporting a shortage.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/io/file.h"
#include "base/telemetry/log.h"
#include "base/thread/executor.h"
#include "base/thread/spares.h"

namespace kvbm {

// Target of requests. It outlives them.
struct IoFile {
  int fd = -1;
  uint64_t device = 0;  // st_dev: requests that wait for one device do not delay those for another
  bool direct = false;
  std::string path;
};

struct IoRequest {
  static constexpr uint32_t kTriesAtOnce = 8;
  enum class Op { read, write, sync };
  Op op = Op::read;
  int fd = -1;
  uint64_t device = 0;    // st_dev of the file
  bool direct = false;    // transfers continue only at multiples of kIoAlign
  bool retried = false;   // the kernel returned EAGAIN; io_uring then uses a worker thread
  int error = 0;          // errno of the result, 0 for success
  uint32_t attempts = 0;  // consecutive tries that moved nothing
  uint64_t offset = 0;    // of the bytes that are still to move
  size_t first = 0;       // the first run that is not yet moved whole
  size_t moved = 0;
  size_t total = 0;
  size_t in_flight = 0;  // bytes counted as being with the kernel
  std::vector<iovec> runs;
  const std::string* path = nullptr;  // the File outlives the request
  IoDone done;
  UniqueFunction<void(Status)> synced;
  // Processes the kernel's answer (bytes, or a negative errno); true when the request has ended.
  bool advance(long answer) noexcept;
  // True if the next try of an unfinished request should wait, because many tries met a shortage.
  [[nodiscard]] bool should_pause() const noexcept { return attempts > kTriesAtOnce; }
  [[nodiscard]] size_t left() const noexcept { return total - moved; }
  // The runs of the next transfer, at most IOV_MAX.
  [[nodiscard]] std::span<const iovec> rest() const noexcept;
};

class IoEngine {
 public:
  explicit IoEngine(Executor& executor) : executor_(executor) {}
  virtual ~IoEngine() = default;  // nothing outstanding; not on a thread of the engine

  // Thread: any. None of these fails: errors are reported by the completion.
  void transfer(IoRequest::Op op, const IoFile& file, uint64_t offset, std::span<const IoRun> runs, IoDone done);
  void sync(const IoFile& file, UniqueFunction<void(Status)> done);

  // Continues a request of another engine, which then belongs to this one.
  void take_over(IoRequest* request) { submit(request); }

  // The engine to be used for writes to direct files.
  [[nodiscard]] virtual IoEngine& for_direct_writes() noexcept { return *this; }
  // Registers [data, data + bytes) if the engine can; returns the index to unregister, or -1.
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
  static constexpr size_t kSpareRequests = 1024;
  IoRequest* take();
  void finish(IoRequest* request);

  Executor& executor_;
  Spares<std::unique_ptr<IoRequest>> spares_{kSpareRequests};
};

// "io_uring_enter: Operation not permitted (errno 1)"
std::string ring_refusal(const char* call, int error);
// Logs that files are read and written without io_uring, and why.
void warn_of_ring(const Log& log, const std::string& why);

struct UringOptions {
  uint32_t entries = 256;  // of the submission ring; four times as many may be in flight
  bool register_buffers = true;
  uint32_t pread_threads = 4;  // used when the ring is refused
  const Log* log = nullptr;    // gets one message about that
};

// Makes the io_uring engine after a test with a no-op. Code::unsupported, with the failed call and its errno, if
// io_uring is missing or forbidden. The kernel may also refuse the ring later, at any call (a process may confine
// itself). Then all requests, old and new, are done by pread and pwrite on threads, and one log message says so.
Result<std::shared_ptr<IoEngine>> make_uring_engine(Executor& executor, const UringOptions& options);
// Makes the engine of pread and pwrite on `threads` threads.
Result<std::shared_ptr<IoEngine>> make_pread_engine(Executor& executor, uint32_t threads);

}  // namespace kvbm
