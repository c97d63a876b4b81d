// Small classes of base/thread that pass values and calls between threads.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/thread/awaited.h"
#include "base/thread/gate.h"
#include "base/thread/open_calls.h"
#include "base/thread/revocable.h"
#include "base/thread/spares.h"
#include "base/thread/versioned.h"

namespace kvbm::between_threads_test {
namespace {

TEST(Awaited, a_wait_takes_the_value_that_another_thread_gives) {
  for (int round = 0; round < 200; ++round) {
    auto awaited = std::make_unique<Awaited<std::unique_ptr<int>>>();
    std::thread giver([&awaited, round] { awaited->give(std::make_unique<int>(round)); });
    const std::unique_ptr<int> got = awaited->wait();
    awaited.reset();  // give() may not have returned yet
    ASSERT_NE(got, nullptr);
    EXPECT_EQ(*got, round);
    giver.join();
  }
}

TEST(Awaited, a_deadline_ends_the_wait_and_a_value_is_there_at_once) {
  const SystemClock clock;
  Awaited<std::string> awaited;
  EXPECT_FALSE(awaited.wait_until(clock, clock.now_ns() + 1'000'000));
  awaited.give("late");
  EXPECT_TRUE(awaited.wait_until(clock, 0));
  EXPECT_EQ(awaited.wait(), "late");
}

TEST(OpenCalls, reports_the_last_call_after_it_was_closed) {
  OpenCalls calls;
  EXPECT_TRUE(calls.enter());
  EXPECT_FALSE(calls.leave());
  EXPECT_TRUE(calls.enter());
  EXPECT_TRUE(calls.enter());
  EXPECT_FALSE(calls.close());
  EXPECT_FALSE(calls.enter());
  EXPECT_FALSE(calls.leave());
  EXPECT_TRUE(calls.leave());
  OpenCalls unused;
  EXPECT_TRUE(unused.close());
  EXPECT_FALSE(unused.enter());
}

TEST(Gate, closing_waits_for_the_calls_inside) {
  for (int round = 0; round < 200; ++round) {
    auto gate = std::make_unique<Gate>();
    int written = 0;  // by the call, read after the gate was closed
    std::latch inside(2);
    std::thread call([&] {
      ASSERT_TRUE(gate->enter());
      inside.arrive_and_wait();
      written = round + 1;
      gate->leave();
    });
    inside.arrive_and_wait();
    gate->close();
    EXPECT_EQ(written, round + 1);
    gate.reset();  // leave() may not have returned yet
    call.join();
  }
}

TEST(Spares, keep_as_many_as_they_may_and_none_once_closed) {
  Spares<std::unique_ptr<int>> spares(2);
  EXPECT_EQ(spares.take(), nullptr);
  EXPECT_TRUE(spares.give_back(std::make_unique<int>(1)));
  EXPECT_TRUE(spares.give_back(std::make_unique<int>(2)));
  EXPECT_FALSE(spares.give_back(std::make_unique<int>(3)));
  const auto last = spares.take();
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(*last, 2);
  EXPECT_EQ(spares.close().size(), 1U);
  EXPECT_FALSE(spares.give_back(std::make_unique<int>(4)));
  EXPECT_EQ(spares.take(), nullptr);
}

TEST(Versioned, a_reader_keeps_its_version_and_no_change_is_lost) {
  constexpr size_t kThreads = 3;
  constexpr size_t kChanges = 200;
  Versioned<std::vector<size_t>> list;
  const std::vector<size_t>& empty = list.get();
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&list, t] {
      for (size_t i = 0; i < kChanges; ++i) {
        const size_t seen = list.get().size();
        list.replace([t](std::vector<size_t>& all) { all.push_back(t); });
        EXPECT_GT(list.get().size(), seen);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(empty.empty());
  EXPECT_EQ(list.get().size(), kThreads * kChanges);
  EXPECT_EQ(list.end().size(), kThreads * kChanges);
}

TEST(Revocable, an_object_is_not_used_once_the_reference_was_revoked) {
  auto object = std::make_unique<int>(0);
  Revocable<int> reference(*object);
  std::latch used(1);
  std::atomic<bool> ended{false};
  std::thread user([&] {
    reference.use([](int& value) { ++value; });
    used.count_down();
    while (!ended.load()) reference.use([](int& value) { ++value; });
  });
  used.wait();
  reference.revoke();
  const int uses = *object;
  object.reset();
  ended.store(true);
  user.join();
  EXPECT_GE(uses, 1);
  bool called = false;
  reference.use([&called](int&) { called = true; });
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace kvbm::between_threads_test
