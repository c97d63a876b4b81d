// Compares the search over orders of steps (support/interleavings.h) with a plain enumeration of all of them.
#include "support/interleavings.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <optional>
#include <set>
#include <vector>

#include "base/crypto/random.h"
#include "support/counts.h"

namespace kvbm::model::interleavings_test {
namespace {

using test::Interleavings;
using test::kThreadSanitizer;
using test::SteppedAtomic;

constexpr size_t kVariables = 3;

// One step of a program: reads a variable into the thread's memory, writes what it remembers, or both at once.
struct Step {
  enum Kind { read, write, add } kind;
  size_t variable;
  uint64_t value;
};
using Program = std::vector<Step>;

// Result of a run: the variables, and the sum of the values that each thread read.
using Outcome = std::array<uint64_t, kVariables + 2>;

template <class Variable>
void take(const Step& step, Variable& variable, uint64_t& memory) {
  switch (step.kind) {
    case Step::read:
      memory = memory * 31 + variable.load();
      break;
    case Step::write:
      variable.store(memory * 7 + step.value);
      break;
    case Step::add:
      memory = memory * 31 + variable.fetch_add(step.value);
  }
}

struct Plain {
  uint64_t value = 0;
  [[nodiscard]] uint64_t load() const { return value; }
  void store(uint64_t to) { value = to; }
  uint64_t fetch_add(uint64_t by) { return std::exchange(value, value + by); }
};

// Enumerates all orders of the steps, even equivalent ones.
void all_orders(const Program (&programs)[2], std::array<Plain, kVariables> variables, std::array<size_t, 2> at,
                std::array<uint64_t, 2> memory, std::set<Outcome>& out) {
  bool ended = true;
  for (size_t t = 0; t < 2; ++t) {
    if (at[t] == programs[t].size()) continue;
    ended = false;
    auto later = variables;
    auto next = at;
    auto after = memory;
    const Step& step = programs[t][next[t]++];
    take(step, later[step.variable], after[t]);
    all_orders(programs, later, next, after, out);
  }
  if (!ended) return;
  out.insert({variables[0].value, variables[1].value, variables[2].value, memory[0], memory[1]});
}

Program some_program(SeededRandom& random, size_t most) {
  Program program(random.below(most) + 1);
  for (Step& step : program) {
    step = {static_cast<Step::Kind>(random.below(3)), random.below(kVariables), random.below(5)};
  }
  return program;
}

TEST(Interleavings, random_programs_come_to_all_that_they_can_and_nothing_else) {
  if (kThreadSanitizer) GTEST_SKIP() << "coroutines are not threads";
  SeededRandom random(1);
  uint64_t runs = 0;
  uint64_t orders = 0;
  for (int i = 0; i < 1500; ++i) {
    SCOPED_TRACE(i);
    const Program programs[2] = {some_program(random, 6), some_program(random, 6)};
    std::set<Outcome> expected;
    all_orders(programs, {}, {}, {1, 2}, expected);
    std::optional<std::array<SteppedAtomic<uint64_t>, kVariables>> variables;
    std::array<uint64_t, 2> memory{};
    const auto play = [&](size_t t) {
      return [&, t] {
        for (const Step& step : programs[t]) take(step, (*variables)[step.variable], memory[t]);
      };
    };
    std::set<Outcome> found;
    Interleavings all;
    const uint64_t tried = all.explore(
        [&] {
          variables.emplace();
          memory = {1, 2};
        },
        play(0), play(1),
        [&] {
          found.insert({(*variables)[0].load(), (*variables)[1].load(), (*variables)[2].load(), memory[0], memory[1]});
          return true;
        });
    ASSERT_EQ(found, expected);
    runs += tried;
    uint64_t of_these = 1;
    for (size_t n = 1; n <= programs[1].size(); ++n) of_these = of_these * (programs[0].size() + n) / n;
    orders += of_these;
  }
  EXPECT_LT(runs, orders / 3);  // or nothing was left out
  test::counted(runs, "orders of steps");
}

struct Mutex {
  void lock() { Interleavings::step(this, Interleavings::Access::lock); }
  void unlock() { Interleavings::step(this, Interleavings::Access::unlock); }
};

TEST(Interleavings, who_has_a_lock_has_it_alone_and_either_may_have_it_first) {
  if (kThreadSanitizer) GTEST_SKIP() << "coroutines are not threads";
  Mutex mutex;
  std::optional<SteppedAtomic<int>> value;
  std::vector<int> order;
  std::set<std::vector<int>> orders;
  const auto twice = [&](int thread) {
    return [&, thread] {
      for (int i = 0; i < 2; ++i) {
        mutex.lock();
        const int seen = value->load();
        value->store(seen + 1);
        order.push_back(thread);
        mutex.unlock();
      }
    };
  };
  Interleavings all;
  all.explore(
      [&] {
        value.emplace(0);
        order.clear();
      },
      twice(1), twice(2),
      [&] {
        orders.insert(order);
        return value->load() == 4;
      });
  EXPECT_EQ(value->load(), 4);
  EXPECT_EQ(orders.size(), 6U);
}

TEST(Interleavings, an_update_that_is_lost_and_threads_that_wait_for_each_other_are_found) {
  if (kThreadSanitizer) GTEST_SKIP() << "coroutines are not threads";
  std::optional<SteppedAtomic<int>> value;
  const auto add = [&] { value->store(value->load() + 1); };
  Interleavings lost;
  lost.explore([&] { value.emplace(0); }, add, add, [&] { return value->load() == 2; });
  EXPECT_EQ(value->load(), 1);
  EXPECT_FALSE(lost.order().empty());
  Mutex a, b;
  Interleavings both;
  both.explore([] {},
               [&] {
                 a.lock(), b.lock();
                 b.unlock(), a.unlock();
               },
               [&] {
                 b.lock(), a.lock();
                 a.unlock(), b.unlock();
               },
               [] { return true; });
  EXPECT_TRUE(both.stuck());
}

}  // namespace
}  // namespace kvbm::model::interleavings_test
