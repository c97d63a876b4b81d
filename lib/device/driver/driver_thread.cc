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

// Ends the thread, or leaves it behind.
void end_now(std::unique_ptr<ThreadExecutor> thread, uint64_t limit_ns) {
  const MemoryWait patient;
  if (!has_run(*thread, limit_ns)) retain_until_exit(std::shared_ptr<ThreadExecutor>(std::move(thread)));
  thread.reset();
}

void* run_task(void* task) {
  (*std::unique_ptr<Task>(static_cast<Task*>(task)))();
  return nullptr;
}

// Called with the last reference, perhaps on the thread itself, which cannot wait for its own end.
void end(std::unique_ptr<ThreadExecutor> thread, uint64_t limit_ns) {
  if (!thread->is_current()) return end_now(std::move(thread), limit_ns);
  const MemoryWait patient;
  auto task = std::make_unique<Task>(
      [thread = std::move(thread), limit_ns]() mutable { end_now(std::move(thread), limit_ns); });
  pthread_t other{};
  if (start_thread(other, "kvbm-ending", &run_task, task.get()).ok()) {
    (void)task.release();
    pthread_detach(other);
  } else {
    retain_until_exit(std::shared_ptr<Task>(std::move(task)));
  }
}

}  // namespace

Result<std::shared_ptr<Executor>> start_driver_thread(const char* name, uint64_t limit_ns) {
  auto made = ThreadExecutor::create(name, 1);
  if (!made.ok()) return made.status();
  const auto guard = std::make_shared<ForkGuard>();
  return std::shared_ptr<Executor>(made.value().release(), [limit_ns, guard](ThreadExecutor* thread) {
    if (!guard->forked()) end(std::unique_ptr<ThreadExecutor>(thread), limit_ns);  // else it is the parent's thread
  });
}

bool has_run(Executor& thread, uint64_t limit_ns) {
  const auto reached = std::make_shared<Awaited<bool>>();
  thread.post([reached] { reached->give(true); });
  const SystemClock clock;
  return reached->wait_until(clock, deadline_after(clock, limit_ns));
}

}  // namespace kvbm::device
