#include "device/driver/driver_thread.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/process/process.h"
#include "base/thread/awaited.h"
#include "base/thread/memory_wait.h"
#include "base/thread/thread_executor.h"
#include "device/driver/retained.h"

namespace kvbm::device {

namespace {

struct Ending {
  std::unique_ptr<ThreadExecutor> thread;
  uint64_t limit_ns;

  void run() {
    const MemoryWait patient;
    if (!has_run(*thread, limit_ns)) retain_until_exit(std::shared_ptr<ThreadExecutor>(std::move(thread)));
    thread.reset();
  }
  static void* entry(void* self) {
    std::unique_ptr<Ending>(static_cast<Ending*>(self))->run();
    return nullptr;
  }
};

// Ends the thread with the last reference to it.
struct ThreadEnd {
  uint64_t limit_ns;
  std::shared_ptr<ForkGuard> fork_guard;
  void operator()(ThreadExecutor* thread) const {
    if (fork_guard->forked()) return;  // its thread is the parent's
    const MemoryWait patient;
    std::unique_ptr<Ending> ending(new Ending{std::unique_ptr<ThreadExecutor>(thread), limit_ns});
    if (!thread->is_current()) return ending->run();
    // A thread cannot wait for its own end.
    pthread_t other{};
    if (start_thread(other, "kvbm-ending", &Ending::entry, ending.get()).ok()) {
      (void)ending.release();
      pthread_detach(other);
    } else {
      retain_until_exit(std::shared_ptr<ThreadExecutor>(std::move(ending->thread)));
    }
  }
};

}  // namespace

Result<std::shared_ptr<Executor>> start_driver_thread(const char* name, uint64_t limit_ns) {
  auto made = ThreadExecutor::create(name, 1);
  if (!made.ok()) return made.status();
  return std::shared_ptr<Executor>(made.value().release(), ThreadEnd{limit_ns, std::make_shared<ForkGuard>()});
}

bool has_run(Executor& thread, uint64_t limit_ns) {
  const auto reached = std::make_shared<Awaited<bool>>();
  thread.post([reached] { reached->give(true); });
  const SystemClock clock;
  return reached->wait_until(clock, deadline_after(clock, limit_ns));
}

}  // namespace kvbm::device
