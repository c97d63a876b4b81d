#include "support/sim_executor.h"

#include "base/thread/memory_wait.h"

namespace kvbm::test {

void SimExecutor::mix(uint64_t v) {
  for (int i = 0; i < 8; ++i) hash_ = (hash_ ^ ((v >> (8 * i)) & 0xff)) * 0x100000001b3ULL;
}

void SimExecutor::note(std::string_view what, uint64_t value) {
  for (char c : what) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  mix(value);
}

void SimExecutor::post(Task task) { ready_.push_back({next_id_++, std::move(task)}); }

void SimExecutor::post_at(uint64_t when_ns, Task task) { timers_.push(when_ns, std::move(task)); }

bool SimExecutor::step() {
  const MemoryWait patient;  // as the library's threads
  if (ready_.empty()) {
    if (timers_.empty()) return false;
    clock_.now = std::max(clock_.now, timers_.first_ns());
  }
  while (timers_.first_ns() <= clock_.now && !timers_.empty()) post(timers_.pop());
  const auto chosen = static_cast<size_t>(random_.below(ready_.size()));
  std::swap(ready_[chosen], ready_.back());
  Ready next = std::move(ready_.back());
  ready_.pop_back();
  ++steps_;
  mix(next.id);
  mix(clock_.now);
  next.task();
  return true;
}

uint64_t SimExecutor::run(uint64_t max_steps) {
  uint64_t n = 0;
  while (n < max_steps && step()) ++n;
  return n;
}

bool SimExecutor::run_until(UniqueFunction<bool()> done, uint64_t max_steps) {
  for (uint64_t n = 0; !done(); ++n) {
    if (n == max_steps || !step()) return done();
  }
  return true;
}

void SimExecutor::run_for(uint64_t ns) {
  run_until_within([] { return false; }, ns);
}

bool SimExecutor::run_until_within(UniqueFunction<bool()> done, uint64_t ns) {
  const uint64_t end = clock_.now + ns;
  bool was = false;
  post_at(end, [] {});  // an event to wait for
  run_until([&] { return (was = done()) || clock_.now >= end; });
  return was;
}

void SimExecutor::drop_all() {
  // Tasks may post while they are destroyed; those are dropped as well.
  while (!ready_.empty() || !timers_.empty()) {
    std::vector<Ready> ready;
    ready.swap(ready_);
    TimerHeap timers;
    std::swap(timers, timers_);
  }
}

}  // namespace kvbm::test
