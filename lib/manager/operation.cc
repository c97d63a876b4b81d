#include "manager/operation.h"

#include <new>
#include <utility>

namespace kvbm::manager {

Operation::Operation(Executor& executor, Counters& counters, copy::OpKind kind, uint64_t deadline_ns)
    : executor_(executor), counters_(counters), kind_(kind), deadline_ns_(deadline_ns) {}

void Operation::begin(Done done) {
  done_ = std::move(done);
  // Before the timer: from there on another thread may wake this, and must find it queued, not idle.
  state_.store(kQueued, std::memory_order_release);
  add(counters_.operations, 1);
  submitted_ns_ = executor_.clock().now_ns();
  if (deadline_ns_ == kNever) return;
  executor_.post_at(deadline_ns_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->expired_.store(true, std::memory_order_relaxed);  // read by interrupted() after wake()'s acq_rel
      self->wake();
    }
  });
}

void Operation::start(Done done) {
  try {
    begin(std::move(done));
    enqueue();
  } catch (...) {
    counters_.operations.fetch_sub(1, std::memory_order_relaxed);
    throw;  // it was never begun: the caller's to undo
  }
}

void Operation::start_here(Done done) {
  try {
    begin(std::move(done));
  } catch (...) {
    counters_.operations.fetch_sub(1, std::memory_order_relaxed);
    throw;
  }
  run();
}

void Operation::enqueue() {
  executor_.post([self = shared_from_this()] { self->run(); });
}

void Operation::cancel() noexcept {
  cancelled_.store(true, std::memory_order_relaxed);
  wake();
}

void Operation::wake() {
  uint32_t state = state_.load(std::memory_order_acquire);
  for (;;) {
    if (state == kIdle) {
      if (!state_.compare_exchange_weak(state, kQueued, std::memory_order_acq_rel)) continue;
      enqueue();
      return;
    }
    if (state != kRunning) return;  // queued, woken already, or finished
    if (state_.compare_exchange_weak(state, kRunningWoken, std::memory_order_acq_rel)) return;
  }
}

Code Operation::interrupted() const noexcept {
  if (cancelled_.load(std::memory_order_relaxed)) return Code::cancelled;
  if (expired_.load(std::memory_order_relaxed)) return Code::deadline;
  if (deadline_ns_ != kNever && executor_.clock().now_ns() >= deadline_ns_) return Code::deadline;
  return Code::ok;
}

// A step that is refused memory ends the operation as a deadline would: what it holds is let go, its completion comes.
Operation::Next Operation::step_or_end(Code& why) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    why = Code::no_memory;
    return Next::finished;
  }
}

void Operation::run() {
  state_.store(kRunning, std::memory_order_release);
  if (began_ns_ == 0) began_ns_ = executor_.clock().now_ns();
  Code ended = Code::ok;
  for (;;) {
    const Code why = interrupted();
    if (why != Code::ok) return finish(why);
    switch (step_or_end(ended)) {
      case Next::finished:
        return finish(ended);
      case Next::more:
        continue;
      case Next::wait: {
        uint32_t running = kRunning;
        if (state_.compare_exchange_strong(running, kIdle, std::memory_order_acq_rel)) return;
        state_.store(kRunning, std::memory_order_release);  // it was woken meanwhile: look again
      }
    }
  }
}

void Operation::finish(Code why) {
  state_.store(kFinished, std::memory_order_release);
  copy::Completion completion;
  completion.op = kind_;
  conclude(why, completion);
  const uint64_t now = executor_.clock().now_ns();
  completion.wait_ns = began_ns_ - submitted_ns_;
  completion.service_ns = now - began_ns_;
  const auto which = static_cast<size_t>(kind_) - 1;
  counters_.wait[which].record(completion.wait_ns);
  counters_.service[which].record(completion.service_ns);
  if (why == Code::deadline) add(counters_.deadline_missed, 1);
  counters_.operations.fetch_sub(1, std::memory_order_relaxed);
  Done done = std::move(done_);
  done(completion);
}

}  // namespace kvbm::manager
