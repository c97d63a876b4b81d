#include "base/io/io_engine.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>
#include <utility>

#include "base/errno_status.h"
#include "base/io/io_patience.h"

namespace kvbm {

namespace {

// True if the bytes of `fd` end at `offset` or before it.
bool at_end(int fd, uint64_t offset) noexcept {
  struct stat st {};
  return fstat(fd, &st) == 0 && offset >= static_cast<uint64_t>(st.st_size);
}

// Temporary failures: a signal, a shortage, or the end of the thread that submitted: the kernel then cancels requests
// that its workers had not begun. The engines cancel nothing themselves.
bool passes(long answer) noexcept { return answer == -EINTR || answer == -EAGAIN || answer == -ECANCELED; }

const char* what_failed(IoRequest::Op op) noexcept {
  switch (op) {
    case IoRequest::Op::read:
      return "cannot read";
    case IoRequest::Op::write:
      return "cannot write";
    default:
      return "cannot make durable";
  }
}

}  // namespace

bool IoRequest::advance(long answer) noexcept {
  if (passes(answer)) {
    retried = answer == -EAGAIN;
    if (++attempts < kMaxIoAttempts) return false;
  }
  if (answer < 0) {
    error = static_cast<int>(-answer);
    return true;
  }
  if (op == Op::sync) return true;
  if (answer == 0) {
    if (op == Op::write && moved < total) error = EIO;
    return true;
  }
  auto left = static_cast<size_t>(answer);
  // The size tells whether a short read met the end of the file: reading on there with O_DIRECT would be refused.
  const bool ended = moved + left >= total || (op == Op::read && at_end(fd, offset + left));
  // Bytes moved beyond the last whole page are moved again.
  if (!ended && direct) left -= std::min<size_t>(left, (offset + left) % kIoAlign);
  if (left == 0) {
    if (++attempts < kMaxIoAttempts) return false;
    error = EIO;
    return true;
  }
  attempts = 0;
  retried = false;
  moved += left;
  offset += left;
  while (first < runs.size() && left >= runs[first].iov_len) left -= runs[first++].iov_len;
  if (left > 0) {
    runs[first].iov_base = static_cast<std::byte*>(runs[first].iov_base) + left;
    runs[first].iov_len -= left;
  }
  return ended;
}

std::span<const iovec> IoRequest::rest() const noexcept {
  return std::span<const iovec>(runs).subspan(first, std::min<size_t>(runs.size() - first, IOV_MAX));
}

IoRequest* IoEngine::take() {
  std::unique_ptr<IoRequest> spare = spares_.take();
  return spare != nullptr ? spare.release() : new IoRequest;
}

void IoEngine::transfer(IoRequest::Op op, const IoFile& file, uint64_t offset, std::span<const IoRun> runs,
                        IoDone done) {
  IoRequest* r = take();
  r->op = op;
  r->fd = file.fd;
  r->device = file.device;
  r->direct = file.direct;
  r->path = &file.path;
  r->offset = offset;
  r->done = std::move(done);
  for (const IoRun& run : runs) {
    if (run.bytes == 0) continue;
    r->runs.push_back({run.data, run.bytes});
    r->total += run.bytes;
  }
  if (r->total == 0) return complete(r);
  submit(r);
}

void IoEngine::sync(const IoFile& file, UniqueFunction<void(Status)> done) {
  IoRequest* r = take();
  r->op = IoRequest::Op::sync;
  r->fd = file.fd;
  r->device = file.device;
  r->path = &file.path;
  r->synced = std::move(done);
  submit(r);
}

void warn_of_ring(const Log& log, const std::string& why) {
  log.write(
      LogLevel::warning, "io",
      why +
          "; files are read and written with pread and pwrite instead. `kvbm doctor` says what to allow; io.engine = "
          "pread says that this is wanted");
}

std::string ring_refusal(const char* call, int error) {
  return std::string(call) + ": " + std::generic_category().message(error) + " (errno " + std::to_string(error) + ")";
}

void IoEngine::complete(IoRequest* request) {
  executor_.post([this, request] { finish(request); });
}

void IoEngine::submit_later(IoRequest* request) {
  executor_.post_at(executor_.clock().now_ns() + kIoPauseNs, [this, request] { submit(request); });
}

// The request is recycled before the caller's function runs, which may end the file and the engine.
void IoEngine::finish(IoRequest* request) {
  std::unique_ptr<IoRequest> r(request);
  Status status;
  if (r->error != 0) status = errno_status(r->error, what_failed(r->op), *r->path);
  const size_t moved = r->moved;
  IoDone done = std::move(r->done);
  UniqueFunction<void(Status)> synced = std::move(r->synced);
  r->runs.clear();
  r->first = r->moved = r->total = 0;
  r->error = 0;
  r->attempts = 0;
  r->retried = false;
  spares_.give_back(std::move(r));
  if (synced) {
    synced(std::move(status));
  } else if (done) {
    if (status.ok()) {
      done(moved);
    } else {
      done(std::move(status));
    }
  }
}

}  // namespace kvbm
