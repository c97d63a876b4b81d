// Nodes in processes of their own are killed and frozen at random moments of transfers, in every role: serving,
// reading, offering and taking an offer. No block is ever wrong, nothing stays held, and staging is returned. A
// peer's end and its return are noticed as soon as promised where the machine has time (support/promise.h). However
// busy the machine is, everything ends within much larger bounds.
//
// KVBMTEST_KILLS (default 50, long 300) and KVBMTEST_FREEZES (10, long 100) say how often, KVBMTEST_SEED where the
// random moments begin.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "base/crypto/random.h"
#include "support/counts.h"
#include "support/member_process.h"
#include "support/promise.h"

namespace kvbm::test::node_kill_test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Time limit far above the promised 2 s and 1 s, because the machine may be busy.
constexpr milliseconds kSoon{20'000};
constexpr uint64_t kSalt = 7;

uint64_t all_kills() { return count_from("KVBMTEST_KILLS", 50, 300); }

class NodeKill : public testing::Test {
 protected:
  void SetUp() override { random_ = std::make_unique<SeededRandom>(seed_from("KVBMTEST_SEED")); }

  // Sleeps for a random time of at most that.
  void sleep_up_to(milliseconds most) {
    std::this_thread::sleep_for(std::chrono::microseconds(random_->below(static_cast<uint64_t>(most.count()) * 1000)));
  }

  // Measures the time until `done` returns true.
  static bool timed(Distribution& into, const std::function<bool()>& done) {
    const auto begun = Clock::now();
    const bool came = wait_until(done, kSoon);
    into.add(Clock::now() - begun);
    return came;
  }
  bool timed(Distribution& into, Promise& promise, const std::function<bool()>& done) {
    const auto begun = Clock::now();
    const bool came = timed(into, done);
    if (came) promise.came(witness_, begun);
    return came;
  }

  std::unique_ptr<SeededRandom> random_;
  const Witness witness_;
};

// Loads random blocks of a serving node for as long as it lives, on a thread of its own.
class Reader {
 public:
  Reader(PoolMember& member, uint64_t seed, milliseconds ask, milliseconds timeout)
      : thread_([this, &member, seed, ask, timeout] { run(member, seed, ask, timeout); }) {}
  ~Reader() { stop(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] uint64_t right() const { return right_; }
  [[nodiscard]] uint64_t wrong() const { return wrong_; }
  [[nodiscard]] uint64_t failed() const { return failed_; }
  [[nodiscard]] uint64_t loads() const { return loads_; }
  [[nodiscard]] milliseconds longest() const { return milliseconds(longest_ms_); }

 private:
  void run(PoolMember& member, uint64_t seed, milliseconds ask, milliseconds timeout) {
    SeededRandom random(seed);
    while (!stopping_) {
      std::vector<kvbm_key_t> keys;
      for (size_t i = 0; i < 16; ++i) {
        keys.push_back(PoolMember::key_of(kSalt, random.below(member.setup().host_blocks)));
      }
      const Loaded one = member.load(keys, ask, timeout);
      ++loads_;
      right_ += one.right;
      wrong_ += one.wrong;
      failed_ += one.failed;
      longest_ms_ = std::max<int64_t>(longest_ms_, one.took.count() / 1'000'000);
      if (one.right == 0) std::this_thread::sleep_for(milliseconds(1));
    }
  }

  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> right_{0}, wrong_{0}, failed_{0}, loads_{0};
  std::atomic<int64_t> longest_ms_{0};
  std::thread thread_;
};

MemberSetup setup_of(const char* name, const std::string& listen = "127.0.0.1:0", const std::string& peers = "") {
  MemberSetup setup;
  setup.name = name;
  setup.listen = listen;
  setup.peers = peers;
  return setup;
}

TEST_F(NodeKill, a_killed_server_costs_misses_and_serves_again_once_it_is_back) {
  const uint64_t kills = all_kills() - 3 * (all_kills() / 6);
  MemberProcess server;
  ASSERT_TRUE(server.start(MemberRole::serve, setup_of("server"), kSalt));
  const std::string address = server.address();
  const auto member = PoolMember::open(setup_of("reader", "", address));
  ASSERT_NE(member, nullptr);
  Distribution noticed;
  Distribution back;
  Promise soon_noticed("a killed node is noticed", milliseconds(2000));
  Promise soon_back("a node that was started again serves", milliseconds(1000));
  uint64_t broken = 0;
  {
    Reader reader(*member, random_->next(), milliseconds(1000), milliseconds(2000));
    ASSERT_TRUE(wait_until([&] { return reader.right() != 0; })) << member->states();
    for (uint64_t i = 0; i < kills && !HasFailure(); ++i) {
      SCOPED_TRACE("kill " + std::to_string(i));
      sleep_up_to(milliseconds(30));
      const uint64_t failed = reader.failed();
      server.signal(SIGKILL);
      EXPECT_TRUE(timed(noticed, soon_noticed, [&] { return member->ready() == 0; }))
          << "the dead node was not noticed";
      server.kill_it();
      broken += reader.failed() != failed ? 1 : 0;
      ASSERT_TRUE(server.start(MemberRole::serve, setup_of("server", address), kSalt));
      const uint64_t before = reader.right();
      EXPECT_TRUE(timed(back, soon_back, [&] { return reader.right() != before; }))
          << member->states() << member->log();
    }
    reader.stop();
    soon_noticed.expect_kept();
    soon_back.expect_kept();
    EXPECT_EQ(reader.wrong(), 0U);
    EXPECT_GT(reader.right(), kills);
    EXPECT_LT(reader.longest(), kSoon);
    kvbm::test::counted(kills, "kills");
    std::printf(
        "%llu kills of the server (%llu in the middle of loads), %llu blocks right, %llu wrong; noticed: %s; "
        "served again: %s\n",
        static_cast<unsigned long long>(kills), static_cast<unsigned long long>(broken),
        static_cast<unsigned long long>(reader.right()), static_cast<unsigned long long>(reader.wrong()),
        noticed.text().c_str(), back.text().c_str());
  }
  EXPECT_EQ(member->leftovers(kSoon), "");
}

TEST_F(NodeKill, a_frozen_server_costs_misses_and_serves_again_when_it_goes_on) {
  const uint64_t freezes = count_from("KVBMTEST_FREEZES", 10, 100);
  MemberProcess server;
  ASSERT_TRUE(server.start(MemberRole::serve, setup_of("server"), kSalt));
  const auto member = PoolMember::open(setup_of("reader", "", server.address()));
  ASSERT_NE(member, nullptr);
  Distribution noticed;
  Distribution back;
  Promise soon_noticed("a node that falls silent is noticed", milliseconds(2000));
  uint64_t lost = 0;
  {
    Reader reader(*member, random_->next(), milliseconds(300), milliseconds(700));
    ASSERT_TRUE(wait_until([&] { return reader.right() != 0; })) << member->states();
    for (uint64_t i = 0; i < freezes && !HasFailure(); ++i) {
      SCOPED_TRACE("freeze " + std::to_string(i));
      sleep_up_to(milliseconds(30));
      server.signal(SIGSTOP);
      if (i % 3 == 0) {  // until it counts as gone
        EXPECT_TRUE(timed(noticed, soon_noticed, [&] { return member->ready() == 0; }))
            << "the frozen node was not noticed";
        ++lost;
      } else {
        sleep_up_to(milliseconds(400));
      }
      const uint64_t before = reader.right();
      server.signal(SIGCONT);
      EXPECT_TRUE(timed(back, [&] { return reader.right() != before; })) << member->states() << member->log();
    }
    reader.stop();
    soon_noticed.expect_kept();
    EXPECT_EQ(reader.wrong(), 0U);
    EXPECT_LT(reader.longest(), kSoon);
    std::printf(
        "%llu freezes (%llu until it counted as gone), %llu blocks right, %llu wrong, longest load %lld ms; "
        "noticed: %s; served again: %s\n",
        static_cast<unsigned long long>(freezes), static_cast<unsigned long long>(lost),
        static_cast<unsigned long long>(reader.right()), static_cast<unsigned long long>(reader.wrong()),
        static_cast<long long>(reader.longest().count()), noticed.text().c_str(), back.text().c_str());
  }
  EXPECT_EQ(member->leftovers(kSoon), "");
}

TEST_F(NodeKill, a_killed_reader_leaves_nothing_held_at_the_server) {
  const uint64_t kills = all_kills() / 6;
  const auto server = PoolMember::open(setup_of("server"));
  ASSERT_NE(server, nullptr);
  Distribution freed;
  MemberProcess reader;
  size_t wrong = 0;
  for (uint64_t i = 0; i < kills && !HasFailure(); ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    ASSERT_EQ(server->put(kSalt, 0, server->setup().host_blocks), KVBM_OK);
    ASSERT_TRUE(reader.start(MemberRole::read, setup_of("reader", "", server->address()), kSalt));
    EXPECT_TRUE(wait_until([&] { return reader.count('r') != 0; }));
    sleep_up_to(milliseconds(20));
    reader.kill_it();
    wrong += reader.count('w');
    std::string left;
    EXPECT_TRUE(timed(freed, [&] { return (left = server->leftovers(milliseconds(0))).empty(); })) << left;
    EXPECT_TRUE(wait_until([&] { return server->ready() == 0; })) << server->states();
  }
  EXPECT_EQ(wrong, 0U);
  kvbm::test::counted(kills, "kills");
  std::printf("%llu kills of the reader, all slots free again: %s\n", static_cast<unsigned long long>(kills),
              freed.text().c_str());
}

TEST_F(NodeKill, a_killed_taker_ends_the_offer_and_its_lease) {
  const uint64_t kills = all_kills() / 6;
  MemberProcess taker;
  ASSERT_TRUE(taker.start(MemberRole::take, setup_of("taker"), kSalt));
  const std::string address = taker.address();
  const auto member = PoolMember::open(setup_of("writer", "", address));
  ASSERT_NE(member, nullptr);
  std::atomic<bool> stopping{false};
  std::atomic<uint64_t> taken{0}, refused{0}, put_failed{0};
  std::atomic<int64_t> longest_ms{0}, room_ms{0};
  std::thread writer([&] {
    const size_t n = member->slots() / 4;
    for (uint64_t first = 0; !stopping; first += n) {
      // Slots of the previous offer are released a moment after it ends, so the put is retried.
      const auto asked = Clock::now();
      if (!wait_until([&] { return member->put(kSalt, first, n) == KVBM_OK; }, kSoon)) ++put_failed;
      room_ms = std::max<int64_t>(room_ms, std::chrono::duration_cast<milliseconds>(Clock::now() - asked).count());
      const auto begun = Clock::now();
      const kvbm_status_t offered = member->offer(kSalt, first, n);
      ++(offered == KVBM_OK ? taken : refused);
      const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begun).count();
      longest_ms = std::max<int64_t>(longest_ms, took);
    }
  });
  EXPECT_TRUE(wait_until([&] { return taken != 0; })) << member->states();
  for (uint64_t i = 0; i < kills && !HasFailure(); ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    sleep_up_to(milliseconds(20));
    taker.kill_it();
    EXPECT_TRUE(wait_until([&] { return member->ready() == 0; })) << "the dead node was not noticed";
    EXPECT_TRUE(taker.start(MemberRole::take, setup_of("taker", address), kSalt));
    const uint64_t before = taken;
    EXPECT_TRUE(wait_until([&] { return taken != before; })) << member->states() << member->log();
  }
  stopping = true;
  writer.join();
  EXPECT_EQ(put_failed, 0U) << "slots stayed held";
  EXPECT_LT(longest_ms, kSoon.count());
  EXPECT_EQ(member->leftovers(kSoon), "");
  kvbm::test::counted(kills, "kills");
  std::printf(
      "%llu kills of the taker, %llu offers taken, %llu not, the longest %lld ms; longest wait for a slot %lld ms\n",
      static_cast<unsigned long long>(kills), static_cast<unsigned long long>(taken.load()),
      static_cast<unsigned long long>(refused.load()), static_cast<long long>(longest_ms.load()),
      static_cast<long long>(room_ms.load()));
}

TEST_F(NodeKill, an_offerer_killed_while_it_is_read_leaves_only_whole_blocks_behind) {
  const uint64_t kills = all_kills() / 6;
  const auto taker = PoolMember::open(setup_of("taker"));
  ASSERT_NE(taker, nullptr);
  MemberProcess offerer;
  size_t checked = 0;
  for (uint64_t i = 0; i < kills && !HasFailure(); ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    ASSERT_TRUE(offerer.start(MemberRole::offer, setup_of("offerer", "", taker->address()), i + 1));
    EXPECT_TRUE(wait_until([&] { return offerer.count('o') != 0; }));
    sleep_up_to(milliseconds(20));
    offerer.kill_it();
    EXPECT_TRUE(wait_until([&] { return taker->ready() == 0; })) << taker->states();
    size_t seen = 0;
    EXPECT_EQ(taker->wrong_in_host(&seen), 0U);
    checked += seen;
    EXPECT_EQ(taker->leftovers(kSoon), "");
  }
  EXPECT_GT(checked, 0U);
  kvbm::test::counted(kills, "kills");
  std::printf("%llu kills of the offerer, %zu blocks of it right\n", static_cast<unsigned long long>(kills), checked);
}

}  // namespace
}  // namespace kvbm::test::node_kill_test
