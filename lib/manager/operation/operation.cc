#include "manager/operation/operation.h"

#include <new>
#include <utility>

#include "base/thread/memory_wait.h"

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
    throw;  // never begun: the caller undoes it
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

void Operation::start_waited(Done done, UniqueFunction<void()> woken) {
  woken_ = std::move(woken);
  try {
    begin(std::move(done));
  } catch (...) {
    counters_.operations.fetch_sub(1, std::memory_order_relaxed);
    throw;
  }
}

void Operation::enqueue() {
  if (woken_) return woken_();
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
    if (state == kFinished) return;
    // Writes the state even if it is queued or woken already. A plain read may still find "queued" although the step
    // has begun and has read its inputs before this call: the step's own write leaves the processor later than that
    // read.
    const uint32_t next = state == kRunning ? uint32_t{kRunningWoken} : state;
    if (state_.compare_exchange_weak(state, next, std::memory_order_acq_rel)) return;
  }
}

void Operation::wake_from_transfer() {
  wake();
  const MemoryWait no_error_path;
  executor_.post([self = shared_from_this()] {});
}

Code Operation::interrupted() const noexcept {
  if (cancelled_.load(std::memory_order_relaxed)) return Code::cancelled;
  if (expired_.load(std::memory_order_relaxed)) return Code::deadline;
  if (deadline_ns_ != kNever && executor_.clock().now_ns() >= deadline_ns_) return Code::deadline;
  return Code::ok;
}

// Ends the operation as a deadline would if a step is refused memory: releases what it holds, and completes it.
Operation::Next Operation::step_or_end(Code& why) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    why = Code::no_memory;
    return Next::finished;
  }
}

void Operation::run() {
  state_.exchange(kRunning, std::memory_order_acq_rel);
  if (began_ns_ == 0) began_ns_ = executor_.clock().now_ns();
  while (run_step()) {
  }
}

bool Operation::run_woken() {
  if (!is_woken()) return false;
  state_.exchange(kRunning, std::memory_order_acq_rel);
  if (began_ns_ == 0) began_ns_ = executor_.clock().now_ns();
  if (!run_step()) return false;
  state_.exchange(kQueued, std::memory_order_acq_rel);
  return expects();
}

// Runs a step, or the rest of an operation that has had its last one.
Operation::Next Operation::next_or_end() {
  if (!ending_) {
    Code why = interrupted();
    const Next next = why == Code::ok ? step_or_end(why) : Next::finished;
    if (next != Next::finished) return next;
    ending_ = true;
    why_ = why;
  }
  return quiet() ? Next::finished : Next::wait;
}

// Runs one step. True: the next one can follow at once.
bool Operation::run_step() {
  const Next next = next_or_end();
  if (next == Next::more) return true;
  if (next == Next::finished) {
    finish(why_);
    return false;
  }
  uint32_t running = kRunning;
  if (state_.compare_exchange_strong(running, kIdle, std::memory_order_acq_rel)) return false;
  state_.exchange(kRunning, std::memory_order_acq_rel);  // woken meanwhile: look again
  return true;
}

void Operation::finish(Code why) {
  state_.store(kFinished, std::memory_order_release);
  copy::Completion completion;
  completion.op = kind_;
  {
    const MemoryWait no_error_path;
    conclude(why, completion);
  }
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
