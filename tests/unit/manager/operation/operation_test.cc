// Steps and wakes of an operation, on two threads.
#include "manager/operation/operation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "support/inline_executor.h"

namespace kvbm::manager::operation_test {
namespace {

// Waits until so many events were counted, as stores, prefetches and offloads do.
class Counting final : public Operation {
 public:
  Counting(Executor& executor, Counters& counters, uint32_t waits_for)
      : Operation(executor, counters, copy::OpKind::prefetch, kNever), waiting_(waits_for) {}

  // Counts an event. Thread: any.
  void one_came() {
    waiting_.fetch_sub(1, std::memory_order_release);
    wake();
  }

 private:
  Next step() override { return waiting_.load(std::memory_order_acquire) == 0 ? Next::finished : Next::wait; }
  void conclude(Code why, copy::Completion& completion) override { completion.status = why; }

  std::atomic<uint32_t> waiting_;
};

// Two threads that begin each round at the same moment, as far as they have processors of their own.
class Rounds {
 public:
  void meet(uint32_t round) noexcept {
    arrived_.fetch_add(1);
    while (arrived_.load() < 2 * (round + 1)) {
      if (++spins_ % 4096 == 0) std::this_thread::yield();
    }
  }

 private:
  std::atomic<uint32_t> arrived_{0};
  static thread_local uint32_t spins_;
};
thread_local uint32_t Rounds::spins_ = 0;

constexpr uint32_t kRounds = 100'000;
// Time in which the searched overlap happens if two processors are free.
constexpr auto kLongest = std::chrono::seconds(2);

// Waits, longer in some rounds than in others.
void linger(uint32_t round) noexcept {
  static std::atomic<uint32_t> turned{0};
  for (uint32_t i = 0; i < round % 64; ++i) turned.store(i, std::memory_order_relaxed);
}

// Runs rounds: one thread runs a step of a queued operation while another calls `act` once. Afterwards every requested
// step is run. Returns the number of operations that did not end.
template <class Prepare, class Act>
uint32_t never_ended(uint32_t waits_for, Prepare prepare, Act act) {
  test::InlineExecutor executor;
  Counters counters;
  Rounds begin;
  Rounds end;
  std::shared_ptr<Counting> operation;
  std::thread other([&] {
    for (uint32_t round = 0;; ++round) {
      begin.meet(round);
      if (operation == nullptr) return;
      linger(round);
      act(*operation);
      end.meet(round);
    }
  });
  const auto until = std::chrono::steady_clock::now() + kLongest;
  uint32_t missed = 0;
  uint32_t round = 0;
  for (; round < kRounds && std::chrono::steady_clock::now() < until; ++round) {
    operation = std::make_shared<Counting>(executor, counters, waits_for);
    bool over = false;
    operation->start_waited([&](const copy::Completion&) { over = true; }, [] {});
    prepare(*operation);
    EXPECT_TRUE(operation->is_woken());
    begin.meet(round);
    (void)operation->run_woken();
    end.meet(round);
    while (operation->is_woken()) (void)operation->run_woken();
    if (!over) ++missed;
  }
  operation = nullptr;
  begin.meet(round);
  other.join();
  return missed;
}

TEST(Operation, sees_what_came_while_a_step_that_an_earlier_arrival_asked_for_began) {
  const auto first_came = [](Counting& operation) {
    (void)operation.run_woken();
    operation.one_came();
  };
  EXPECT_EQ(never_ended(2, first_came, [](Counting& operation) { operation.one_came(); }), 0U);
}

TEST(Operation, sees_a_cancel_that_comes_while_a_step_begins) {
  EXPECT_EQ(never_ended(
                1, [](Counting&) {}, [](Counting& operation) { operation.cancel(); }),
            0U);
}

}  // namespace
}  // namespace kvbm::manager::operation_test
