#include "copy/transport_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "copy/tcp/tcp_transport.h"

namespace kvbm::copy::transport_thread_test {
namespace {

// Counts, and answers each message with itself.
class Echo final : public TransportListener {
 public:
  TransportThread* thread = nullptr;
  bool answers = false;
  std::atomic<int> messages{0};
  std::atomic<int> closed{0};
  std::promise<Peer> connected;

 private:
  void peer_accepted(Peer, std::string_view) override {}
  void peer_connected(Peer peer) override { connected.set_value(peer); }
  void peer_message(Peer peer, ConstBytes bytes) override {
    EXPECT_TRUE(!answers || thread->transport().send(peer, bytes) == Code::ok);
    ++messages;
  }
  void pushed(Peer, Token, Code) override {}
  void received(Peer, Token, Code, uint64_t) override {}
  void peer_closed(Peer, const Status&) override { ++closed; }
};

std::unique_ptr<TransportThread> start(Echo& echo, const char* name) {
  auto thread = TransportThread::create(name, tcp::ops(), {}, echo);
  EXPECT_TRUE(thread.ok()) << thread.status().message();
  echo.thread = thread.value().get();
  return std::move(thread).value();
}

template <class Call>
auto on(TransportThread& thread, Call&& call) {
  std::promise<decltype(call())> result;
  thread.post([&] { result.set_value(call()); });
  return result.get_future().get();
}

void wait_for(const std::atomic<int>& value, int wanted) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (value.load() < wanted && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(value.load(), wanted);
}

TEST(TransportThread, tasks_of_several_threads_run_on_its_own_in_the_order_of_each) {
  Echo echo;
  auto thread = start(echo, "tr");
  std::vector<int> seen[4];
  {
    std::vector<std::thread> posters;
    for (int p = 0; p < 4; ++p) {
      posters.emplace_back([&, p] {
        for (int i = 0; i < 1000; ++i) thread->post([&, p, i] { seen[p].push_back(i); });
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  thread.reset();
  for (const auto& list : seen) {
    ASSERT_EQ(list.size(), 1000U);
    EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
  }
}

TEST(TransportThread, timers_run_in_their_order_and_not_before_their_time) {
  Echo echo;
  auto thread = start(echo, "tr");
  const uint64_t now = thread->clock().now_ns();
  std::vector<int> order;
  std::promise<void> done;
  const auto at = [&](uint64_t ms, int name) {
    thread->post_at(now + ms * 1'000'000, [&, ms, name] {
      EXPECT_GE(thread->clock().now_ns(), now + ms * 1'000'000);
      order.push_back(name);
      if (order.size() == 3) done.set_value();
    });
  };
  // In one task, so that none falls due before all are set, however late this thread is.
  thread->post([&at] {
    at(30, 3);
    at(10, 1);
    at(20, 2);
  });
  ASSERT_EQ(done.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(TransportThread, messages_go_there_and_back_between_two_threads) {
  Echo one, two;
  two.answers = true;
  auto a = start(one, "a");
  auto b = start(two, "b");
  const auto bound = on(*b, [&] { return b->transport().listen("127.0.0.1:0"); });
  ASSERT_TRUE(bound.ok()) << bound.status().message();
  const auto peer = on(*a, [&] { return a->transport().connect(bound.value()); });
  ASSERT_TRUE(peer.ok());
  ASSERT_EQ(one.connected.get_future().get(), peer.value());
  const std::byte message[100] = {};
  for (int i = 1; i <= 200; ++i) {
    a->post([&] { EXPECT_EQ(a->transport().send(peer.value(), message), Code::ok); });
    if (i % 10 == 0) wait_for(one.messages, i);
  }
  wait_for(one.messages, 200);
  b.reset();
  EXPECT_EQ(two.closed.load(), 1);
  wait_for(one.closed, 1);
}

TEST(TransportThread, its_end_runs_what_was_posted_and_drops_timers) {
  Echo echo;
  int ran = 0;
  {
    auto thread = start(echo, "tr");
    for (int i = 0; i < 500; ++i) thread->post([&] { ++ran; });
    thread->post_at(thread->clock().now_ns() + 3'600'000'000'000ULL, [&] { ran = -1'000'000; });
  }
  EXPECT_EQ(ran, 500);
}

TEST(TransportThread, tasks_that_keep_coming_do_not_keep_the_sockets_waiting) {
  Echo one, two;
  auto a = start(one, "a");
  auto b = start(two, "b");
  const auto bound = on(*b, [&] { return b->transport().listen("127.0.0.1:0"); });
  ASSERT_TRUE(bound.ok());
  std::atomic<bool> stop{false};
  // Uses a plain pointer, because the last tasks run while the owner is being destroyed.
  std::function<void()> again = [&, self = b.get()] {
    if (!stop) self->post([&] { again(); });
  };
  b->post([&] { again(); });
  const auto peer = on(*a, [&] { return a->transport().connect(bound.value()); });
  ASSERT_TRUE(peer.ok());
  a->post([&] { EXPECT_EQ(a->transport().send(peer.value(), {}), Code::ok); });
  wait_for(two.messages, 1);
  stop = true;
  b.reset();  // before the function that its last task calls
}

TEST(TransportThread, whoever_waits_for_an_answer_may_drive_meanwhile) {
  Echo one, two;
  two.answers = true;
  auto a = start(one, "a");
  auto b = start(two, "b");
  const auto bound = on(*b, [&] { return b->transport().listen("127.0.0.1:0"); });
  ASSERT_TRUE(bound.ok());
  const auto peer = on(*a, [&] { return a->transport().connect(bound.value()); });
  ASSERT_TRUE(peer.ok());
  const uint64_t deadline = a->clock().now_ns() + 60'000'000'000;
  for (int i = 1; i <= 2000; ++i) {
    const auto ask = [&] { EXPECT_EQ(a->transport().send(peer.value(), {}), Code::ok); };
    const auto answered = [&] { return one.messages.load() >= i; };
    if (i % 2 == 0) {
      ASSERT_TRUE(a->help_until(ask, answered, deadline)) << i;
    } else {
      a->post(ask);
      ASSERT_TRUE(a->help_until(answered, deadline)) << i;
    }
    if (i % 100 == 0) {
      // Without a helper the thread itself runs the posted calls.
      a->post([&] { EXPECT_EQ(a->transport().send(peer.value(), {}), Code::ok); });
      wait_for(one.messages, ++i);
    }
  }
  EXPECT_FALSE(a->help_until([] { return false; }, a->clock().now_ns() + 1'000'000));
}

// Acts like a thread that polls for an event that does not come.
TEST(TransportThread, helps_that_are_over_at_once_do_not_keep_the_sockets_waiting) {
  Echo one, two;
  two.answers = true;
  auto a = start(one, "a");
  auto b = start(two, "b");
  const auto bound = on(*b, [&] { return b->transport().listen("127.0.0.1:0"); });
  ASSERT_TRUE(bound.ok());
  std::atomic<bool> stop{false};
  std::thread asks([&] {
    while (!stop) EXPECT_TRUE(b->help_until([] {}, [] { return true; }, b->clock().now_ns() + 60'000'000'000));
  });
  const auto peer = on(*a, [&] { return a->transport().connect(bound.value()); });
  ASSERT_TRUE(peer.ok());
  // If helps kept the sockets from being served, each message would take two seconds, 400 s in all. A busy machine
  // takes a part of a second for each.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(240);
  int sent = 0;
  while (sent < 200 && std::chrono::steady_clock::now() < end) {
    a->post([&] { EXPECT_EQ(a->transport().send(peer.value(), {}), Code::ok); });
    wait_for(one.messages, ++sent);
  }
  EXPECT_EQ(sent, 200);
  stop = true;
  asks.join();
}

TEST(TransportThread, several_that_wait_take_turns_and_one_drives_at_a_time) {
  Echo one, two;
  two.answers = true;
  auto a = start(one, "a");
  auto b = start(two, "b");
  const auto bound = on(*b, [&] { return b->transport().listen("127.0.0.1:0"); });
  ASSERT_TRUE(bound.ok());
  const auto peer = on(*a, [&] { return a->transport().connect(bound.value()); });
  ASSERT_TRUE(peer.ok());
  constexpr int kThreads = 4;
  constexpr int kTasks = 500;
  int counted = 0;  // by tasks alone: a race if two drive at once
  std::atomic<int> ran{0};
  std::vector<std::thread> helpers;
  for (int t = 0; t < kThreads; ++t) {
    helpers.emplace_back([&] {
      for (int i = 0; i < kTasks; ++i) {
        std::atomic<bool> done{false};
        a->post([&] {
          ++counted;
          ++ran;
          EXPECT_EQ(a->transport().send(peer.value(), {}), Code::ok);
          done = true;
        });
        ASSERT_TRUE(a->help_until([&] { return done.load(); }, a->clock().now_ns() + 60'000'000'000));
      }
    });
  }
  for (std::thread& helper : helpers) helper.join();
  EXPECT_EQ(ran.load(), kThreads * kTasks);
  wait_for(one.messages, kThreads * kTasks);
  a.reset();
  EXPECT_EQ(counted, kThreads * kTasks);
}

TEST(TransportThread, a_nudge_makes_whoever_waits_ask_again) {
  Echo echo;
  auto thread = start(echo, "tr");
  constexpr int kThreads = 3;
  constexpr int kRounds = 500;
  std::atomic<int> round{0};
  std::atomic<int> seen{0};
  std::vector<std::thread> helpers;
  for (int t = 0; t < kThreads; ++t) {
    helpers.emplace_back([&] {
      for (int i = 1; i <= kRounds; ++i) {
        ASSERT_TRUE(thread->help_until([&] { return round.load() >= i; }, thread->clock().now_ns() + 60'000'000'000));
        ++seen;
      }
    });
  }
  for (int i = 1; i <= kRounds; ++i) {
    round = i;  // only the nudge reports it
    thread->nudge();
    wait_for(seen, i * kThreads);
  }
  for (std::thread& helper : helpers) helper.join();
}

TEST(TransportThread, what_is_said_between_asking_and_waiting_is_not_missed) {
  Echo echo;
  auto thread = start(echo, "tr");
  std::atomic<bool> end{false};
  std::atomic<int> asked{0};
  std::thread driver([&] { EXPECT_TRUE(thread->help_until([&] { return ++asked, end.load(); })); });
  while (asked < 2) std::this_thread::yield();
  bool first = true;
  const auto done = [&] {
    if (!std::exchange(first, false)) return true;
    // Notifies before this thread waits, and the driver sleeps again by then.
    thread->nudge();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return false;
  };
  const uint64_t deadline = thread->clock().now_ns() + 60'000'000'000;
  EXPECT_TRUE(thread->help_until(done, deadline));
  EXPECT_LT(thread->clock().now_ns(), deadline) << "it waited to the end";
  end = true;
  thread->nudge();
  driver.join();
}

TEST(TransportThread, who_is_about_to_help_and_waits_for_a_task_first_is_not_left_alone_with_it) {
  Echo echo;
  auto thread = start(echo, "tr");
  std::atomic<bool> ran{false};
  std::atomic<bool> over{false};
  on(*thread, [] { return 0; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the thread sleeps
  // Ends the wait if nothing else does, so that the test fails instead of hanging.
  std::thread rescuer([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!over && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(over) << "nobody ran it";
    thread->post([] {});
  });
  {
    const TransportThread::AboutToHelp soon(*thread);
    thread->post_and_wait([&] { ran = true; });
  }
  over = true;
  rescuer.join();
  EXPECT_TRUE(ran);
}

TEST(TransportThread, what_is_posted_before_helping_runs_when_the_poster_helps) {
  Echo echo;
  auto thread = start(echo, "tr");
  for (int i = 0; i < 500; ++i) {
    const TransportThread::AboutToHelp soon(*thread);
    std::atomic<bool> ran{false};
    thread->post([&] { ran = true; });
    ASSERT_TRUE(thread->help_until([&] { return ran.load(); }, thread->clock().now_ns() + 60'000'000'000)) << i;
  }
}

TEST(TransportThread, what_is_posted_before_helping_runs_also_when_the_poster_does_not_help) {
  Echo echo;
  auto thread = start(echo, "tr");
  std::atomic<int> ran{0};
  for (int i = 1; i <= 500; ++i) {
    {
      const TransportThread::AboutToHelp soon(*thread);
      thread->post([&] { ++ran; });
      if (i % 5 == 0) thread->help_once();
    }
    wait_for(ran, i);
  }
}

}  // namespace
}  // namespace kvbm::copy::transport_thread_test
