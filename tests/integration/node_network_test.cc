// Two nodes with a network between them that cuts, delays, repeats, drops, changes and withholds bytes at random
// places (support/faulty_proxy.h). No block is ever wrong and every call ends by its deadline. A connection with
// damaged data ends with a counted reason and is made again, and nothing stays held.
//
// KVBMTEST_SEED says where the random places begin; KVBMTEST_NETWORK_MS how long each fault lasts (default 800 ms, with
// KVBMTEST_LONG 10 s).
#include <gtest/gtest.h>

#include <cstdio>
#include <thread>

#include "base/crypto/random.h"
#include "support/counts.h"
#include "support/faulty_proxy.h"
#include "support/pool_member.h"

namespace kvbm::test::node_network_test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAsk{500};
constexpr milliseconds kLoad{1500};
// Calls end by their deadlines; beyond these the machine may be busy.
constexpr milliseconds kSlack{10'000};
constexpr milliseconds kSoon{20'000};
constexpr uint64_t kSalt = 3;

struct Case {
  Fault fault;
  uint64_t every_bytes;
};

class NodeNetwork : public testing::Test {
 protected:
  void SetUp() override {
    random_ = std::make_unique<SeededRandom>(seed_from("KVBMTEST_SEED"));
    MemberSetup setup;
    setup.name = "server";
    server_ = PoolMember::open(setup);
    ASSERT_NE(server_, nullptr);
    proxy_ = std::make_unique<FaultyProxy>(server_->address(), random_->next());
    ASSERT_FALSE(proxy_->address().empty());
    setup.name = "reader";
    setup.listen = "";
    setup.peers = proxy_->address();
    reader_ = PoolMember::open(setup);
    ASSERT_NE(reader_, nullptr);
    ASSERT_TRUE(wait_until([&] { return reader_->ready() == 1; })) << reader_->states();
  }

  // Loads through the network for a while. After the faults have ended, all blocks must be loaded.
  void read_through(const Case& what) {
    SCOPED_TRACE(std::string(name_of(what.fault)) + " every " + std::to_string(what.every_bytes) + " bytes");
    ASSERT_EQ(server_->put(kSalt, 0, server_->setup().host_blocks), KVBM_OK);
    const uint64_t faults = proxy_->faults();
    const uint64_t connections = proxy_->connections();
    uint64_t right = 0, failed = 0, wrong = 0;
    milliseconds longest{0};
    proxy_->set(what.fault, what.every_bytes);
    const auto until = Clock::now() + milliseconds(count_from("KVBMTEST_NETWORK_MS", 800, 10'000));
    do {
      std::vector<kvbm_key_t> keys;
      for (size_t i = 0; i < 8; ++i) {
        keys.push_back(PoolMember::key_of(kSalt, random_->below(server_->setup().host_blocks)));
      }
      const Loaded one = reader_->load(keys, kAsk, kLoad);
      right += one.right;
      failed += one.failed;
      wrong += one.wrong;
      longest = std::max(longest, std::chrono::duration_cast<milliseconds>(one.took));
      if (one.right == 0) std::this_thread::sleep_for(milliseconds(1));
    } while (Clock::now() < until);
    std::printf("%-9s %6llu faults, %4llu connections, %6llu blocks right, %5llu not, longest call %lld ms\n",
                name_of(what.fault), static_cast<unsigned long long>(proxy_->faults() - faults),
                static_cast<unsigned long long>(proxy_->connections() - connections),
                static_cast<unsigned long long>(right), static_cast<unsigned long long>(failed),
                static_cast<long long>(longest.count()));
    EXPECT_EQ(wrong, 0U);
    EXPECT_LT(longest, kAsk + kLoad + kSlack);
    EXPECT_GT(proxy_->faults(), faults);
    proxy_->set(Fault::none, 0);
    const std::vector<kvbm_key_t> all = PoolMember::keys_of(kSalt, 0, 16);
    EXPECT_TRUE(wait_until([&] { return reader_->load(all, kAsk, kLoad).right == all.size(); }, kSoon))
        << reader_->states() << reader_->log();
    EXPECT_EQ(reader_->leftovers(kSoon), "");
    EXPECT_EQ(server_->leftovers(kSoon), "");
  }

  // Pushes blocks through the faulty network.
  void offer_through(const Case& what) {
    SCOPED_TRACE(std::string("offers, ") + name_of(what.fault));
    proxy_->set(what.fault, what.every_bytes);
    uint64_t taken = 0, not_taken = 0;
    milliseconds longest{0};
    const auto until = Clock::now() + milliseconds(count_from("KVBMTEST_NETWORK_MS", 800, 10'000));
    const size_t n = 8;
    do {
      if (!wait_until([&] { return reader_->put(kSalt + 1, offered_, n) == KVBM_OK; }, kSoon)) {
        FAIL() << "no slot for 20 s: " << reader_->leftovers(milliseconds(0));
      }
      const auto begun = Clock::now();
      ++(reader_->offer(kSalt + 1, offered_, n) == KVBM_OK ? taken : not_taken);
      longest = std::max(longest, std::chrono::duration_cast<milliseconds>(Clock::now() - begun));
      offered_ += n;
    } while (Clock::now() < until);
    proxy_->set(Fault::none, 0);
    size_t seen = 0;
    EXPECT_EQ(server_->wrong_in_host(&seen), 0U);
    std::printf("%-9s %6llu offers taken, %5llu not, longest %lld ms, %zu blocks there right\n", name_of(what.fault),
                static_cast<unsigned long long>(taken), static_cast<unsigned long long>(not_taken),
                static_cast<long long>(longest.count()), seen);
    EXPECT_LT(longest, milliseconds(10'000) + kSlack);  // the lease of an offer
    EXPECT_TRUE(wait_until([&] {
      return reader_->put(kSalt + 1, offered_, 1) == KVBM_OK && reader_->offer(kSalt + 1, offered_++, 1) == KVBM_OK &&
             reader_->ready() == 1;
    })) << reader_->states();
    EXPECT_EQ(reader_->leftovers(kSoon), "");
    EXPECT_EQ(server_->leftovers(kSoon), "");
  }

  std::unique_ptr<SeededRandom> random_;
  std::unique_ptr<PoolMember> server_;
  std::unique_ptr<FaultyProxy> proxy_;
  std::unique_ptr<PoolMember> reader_;
  uint64_t offered_ = 0;
};

// Sum of a counter over its labels.
uint64_t counter(const PoolMember& member, const std::string& name) {
  const std::string text = "\n" + member.metrics();
  uint64_t sum = 0;
  for (size_t at = 0; (at = text.find("\n" + name, at)) != std::string::npos;) {
    at = text.find(' ', at + 1);
    sum += std::strtoull(text.c_str() + at, nullptr, 10);
  }
  return sum;
}

TEST_F(NodeNetwork, a_reader_gets_right_blocks_or_none_through_a_network_that_spoils_bytes) {
  const Case cases[] = {{Fault::cut, 1 << 20},    {Fault::reset, 1 << 20},       {Fault::garble, 256 << 10},
                        {Fault::garble, 2 << 10}, {Fault::overwrite, 256 << 10}, {Fault::duplicate, 1 << 20},
                        {Fault::drop, 1 << 20},   {Fault::delay, 256 << 10}};
  for (const Case& one : cases) {
    read_through(one);
    if (HasFailure()) return;
  }
  // Damage was detected, logged and counted.
  EXPECT_GT(counter(*reader_, "kvbm_node_connections_ended_total{reason=\"damaged\"}"), 0U) << reader_->metrics();
  EXPECT_GT(counter(*reader_, "kvbm_node_connections_ended_total{reason=\"closed\"}"), 0U);
  EXPECT_GT(counter(*reader_, "kvbm_node_connections_total"), 5U);
  // A spoilt head is damage, a spoilt payload an error of the tier: where few records came through it may be either.
  EXPECT_GT(counter(*reader_, "kvbm_tier_errors_total{tier=\"1\"}") + counter(*reader_, "kvbm_node_damaged_total"), 0U)
      << reader_->metrics();
}

TEST_F(NodeNetwork, a_reader_whose_bytes_are_withheld_gives_up_by_its_deadline_and_connects_again) {
  read_through({Fault::withhold, 1 << 20});
}

TEST_F(NodeNetwork, what_is_offered_through_such_a_network_is_taken_right_or_not_at_all) {
  const Case cases[] = {{Fault::cut, 1 << 20},
                        {Fault::duplicate, 1 << 20},
                        {Fault::delay, 256 << 10},
                        {Fault::garble, 256 << 10},
                        {Fault::overwrite, 256 << 10}};
  for (const Case& one : cases) {
    offer_through(one);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace kvbm::test::node_network_test
