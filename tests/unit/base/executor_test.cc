#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/thread/thread_executor.h"
#include "support/inline_executor.h"

namespace kvbm::executor_test {
namespace {

using test::InlineExecutor;

std::unique_ptr<ThreadExecutor> pool(uint32_t threads) {
  auto made = ThreadExecutor::create("test", threads);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

TEST(ThreadExecutor, one_thread_runs_tasks_in_the_order_posted) {
  std::vector<int> order;
  {
    auto executor = pool(1);
    for (int i = 0; i < 1000; ++i) executor->post([&order, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(ThreadExecutor, threads_run_tasks_at_the_same_time) {
  auto executor = pool(3);
  std::latch together(4);
  for (int i = 0; i < 3; ++i) executor->post([&] { together.arrive_and_wait(); });
  together.arrive_and_wait();
}

TEST(ThreadExecutor, posts_from_many_threads_all_run_once) {
  std::atomic<int> count{0};
  {
    auto executor = pool(2);
    std::vector<std::thread> posters;
    for (int t = 0; t < 4; ++t) {
      posters.emplace_back([&] {
        for (int i = 0; i < 5000; ++i) executor->post([&] { count.fetch_add(1, std::memory_order_relaxed); });
      });
    }
    for (auto& p : posters) p.join();
  }
  EXPECT_EQ(count.load(), 20000);
}

TEST(ThreadExecutor, destructor_runs_what_posted_tasks_post_and_drops_timers) {
  std::atomic<int> ran{0};
  auto held = std::make_shared<int>(1);
  {
    auto executor = pool(1);
    ThreadExecutor* e = executor.get();
    e->post_at(kNever - 1, [held, &ran] { ran += 100; });
    e->post([e, &ran] { e->post([&ran] { ++ran; }); });
  }
  EXPECT_EQ(ran.load(), 1);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(ThreadExecutor, timers_run_by_time_and_not_before) {
  for (uint32_t threads : {1u, 3u}) {
    auto executor = pool(threads);
    std::mutex mutex;
    std::vector<int> order;
    std::latch all(3);
    const uint64_t start = executor->clock().now_ns();
    std::atomic<bool> early{false};
    const auto at = [&](uint64_t after_ms, int id) {
      const uint64_t when = start + after_ms * 1'000'000;
      executor->post_at(when, [&, when, id] {
        if (executor->clock().now_ns() < when) early = true;
        {
          std::lock_guard lock(mutex);
          order.push_back(id);
        }
        all.count_down();
      });
    };
    // One thread is left for the timers, and sets all of them before it can run the first: their order is that of their
    // times, however late any thread is.
    for (uint32_t i = 1; i < threads; ++i) executor->post([&all] { all.wait(); });
    executor->post([&at] {
      at(40, 3);
      at(1, 1);
      at(20, 2);
    });
    all.wait();
    executor.reset();
    EXPECT_FALSE(early.load());
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  }
}

TEST(ThreadExecutor, a_timer_fires_while_the_only_other_thread_is_busy) {
  auto executor = pool(2);
  std::latch fired(1);
  executor->post_at(executor->clock().now_ns() + 1'000'000, [&] { fired.count_down(); });
  executor->post([&] { fired.wait(); });
  fired.wait();
}

TEST(ThreadExecutor, threads_are_named_and_block_signals) {
  auto executor = pool(1);
  std::latch done(1);
  std::string name(16, '\0');
  bool blocked = false;
  executor->post([&] {
    pthread_getname_np(pthread_self(), name.data(), name.size());
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGUSR1) == 1;
    done.count_down();
  });
  done.wait();
  EXPECT_STREQ(name.c_str(), "kvbm-test-0");
  EXPECT_TRUE(blocked);
}

TEST(ThreadExecutor, refuses_no_threads) {
  EXPECT_EQ(ThreadExecutor::create("x", 0).status().code(), Code::invalid_argument);
}

TEST(InlineExecutor, runs_nothing_until_driven_and_then_on_the_caller) {
  InlineExecutor executor;
  std::thread::id where;
  executor.post([&] { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::thread::id());
  EXPECT_TRUE(executor.run_until([&] { return where != std::thread::id(); }));
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(InlineExecutor, run_until_ends_at_the_predicate_and_at_the_deadline) {
  InlineExecutor executor;
  int ran = 0;
  for (int i = 0; i < 10; ++i) executor.post([&] { ++ran; });
  EXPECT_TRUE(executor.run_until([&] { return ran == 3; }));
  EXPECT_EQ(ran, 3);
  EXPECT_FALSE(executor.run_until([] { return false; }, executor.clock().now_ns() + 1'000'000));
  EXPECT_EQ(ran, 10);
}

TEST(InlineExecutor, run_until_waits_for_timers_and_for_posts_of_other_threads) {
  InlineExecutor executor;
  bool timer = false;
  executor.post_at(executor.clock().now_ns() + 2'000'000, [&] { timer = true; });
  EXPECT_TRUE(executor.run_until([&] { return timer; }));
  bool posted = false;
  std::thread other([&] { executor.post([&] { posted = true; }); });
  EXPECT_TRUE(executor.run_until([&] { return posted; }));
  other.join();
}

TEST(InlineExecutor, two_drivers_see_each_others_progress) {
  InlineExecutor executor;
  std::atomic<int> ran{0};
  auto drive = [&] { EXPECT_TRUE(executor.run_until([&] { return ran.load() >= 1000; })); };
  std::thread a(drive);
  std::thread b(drive);
  for (int i = 0; i < 1000; ++i) executor.post([&] { ++ran; });
  a.join();
  b.join();
  EXPECT_EQ(ran.load(), 1000);
}

}  // namespace
}  // namespace kvbm::executor_test
