// The engine for systems that forbid io_uring: blocking calls on a small pool of threads.
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "base/io/io_engine.h"
#include "base/thread/thread_executor.h"

namespace kvbm {

namespace {

class PreadEngine final : public IoEngine {
 public:
  PreadEngine(Executor& executor, std::unique_ptr<ThreadExecutor> pool) : IoEngine(executor), pool_(std::move(pool)) {}

  int register_buffer(std::byte*, size_t) override { return -1; }
  void unregister_buffer(int) override {}
  [[nodiscard]] std::string describe() const override {
    return "pread/pwrite on " + std::to_string(pool_->threads()) + " threads";
  }

 private:
  void submit(IoRequest* request) override {
    pool_->post([this, request] {
      while (!request->advance(move(*request))) {
        if (request->should_pause()) return submit_later(request);
      }
      complete(request);
    });
  }

  static long move(const IoRequest& r) noexcept {
    long n = 0;
    const auto runs = r.rest();
    const auto count = static_cast<int>(runs.size());
    const auto offset = static_cast<off_t>(r.offset);
    switch (r.op) {
      case IoRequest::Op::read:
        n = preadv(r.fd, runs.data(), count, offset);
        break;
      case IoRequest::Op::write:
        n = pwritev(r.fd, runs.data(), count, offset);
        break;
      case IoRequest::Op::sync:
        n = fdatasync(r.fd);
        break;
    }
    return n < 0 ? -errno : n;
  }

  std::unique_ptr<ThreadExecutor> pool_;
};

}  // namespace

Result<std::shared_ptr<IoEngine>> make_pread_engine(Executor& executor, uint32_t threads) {
  auto pool = ThreadExecutor::create("pread", threads);
  if (!pool.ok()) return pool.status();
  return std::shared_ptr<IoEngine>(std::make_shared<PreadEngine>(executor, std::move(pool).value()));
}

}  // namespace kvbm
