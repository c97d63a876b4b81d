// Outdated knowledge about another node: blocks that were evicted, slots that hold other blocks by now, a node that
// was replaced by another under the same address. Each is a miss, never wrong bytes.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "base/crypto/random.h"
#include "support/counts.h"
#include "support/pool_member.h"

namespace kvbm::test::node_stale_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kSoon{60'000};

class NodeStale : public testing::Test {
 protected:
  void SetUp() override { random_ = std::make_unique<SeededRandom>(seed_from("KVBMTEST_SEED")); }

  static std::unique_ptr<PoolMember> server(uint64_t host_blocks, const std::string& listen = "127.0.0.1:0") {
    MemberSetup setup;
    setup.name = "server";
    setup.listen = listen;
    setup.host_blocks = host_blocks;
    setup.engine_blocks = 0;
    return PoolMember::open(setup);
  }
  static std::unique_ptr<PoolMember> reader(const std::string& peers) {
    MemberSetup setup;
    setup.name = "reader";
    setup.listen = "";
    setup.peers = peers;
    return PoolMember::open(setup);
  }

  std::unique_ptr<SeededRandom> random_;
};

TEST_F(NodeStale, slots_that_are_reused_all_the_time_give_right_blocks_or_none) {
  // Eight slots for sixty-four blocks that come and go as fast as they can.
  constexpr uint64_t kBlocks = 64;
  const auto from = server(8);
  ASSERT_NE(from, nullptr);
  const auto to = reader(from->address());
  ASSERT_NE(to, nullptr);
  ASSERT_TRUE(wait_until([&] { return to->ready() == 1; })) << to->states();
  std::atomic<bool> stopping{false};
  std::atomic<uint64_t> put{0};
  std::thread churn([&, seed = random_->next()] {
    SeededRandom random(seed);
    while (!stopping) put += from->put(1, random.below(kBlocks - 2), 2) == KVBM_OK ? 1 : 0;
  });
  uint64_t right = 0, wrong = 0, gone = 0, nowhere = 0;
  const auto until = std::chrono::steady_clock::now() + milliseconds(count_from("KVBMTEST_STALE_MS", 3000, 30'000));
  while (std::chrono::steady_clock::now() < until) {
    std::vector<kvbm_key_t> keys;
    for (size_t i = 0; i < 16; ++i) keys.push_back(PoolMember::key_of(1, random_->below(kBlocks)));
    const Loaded one = to->load(keys, seconds(1), seconds(5));
    right += one.right;
    wrong += one.wrong;
    gone += one.failed;
    nowhere += one.asked - one.hits;
  }
  stopping = true;
  churn.join();
  std::printf("%llu times put over, %llu blocks right, %llu wrong, %llu gone when they were fetched, %llu nowhere\n",
              static_cast<unsigned long long>(put.load()), static_cast<unsigned long long>(right),
              static_cast<unsigned long long>(wrong), static_cast<unsigned long long>(gone),
              static_cast<unsigned long long>(nowhere));
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(right, 0U);
  EXPECT_GT(gone, 0U) << "nothing was stale";
  EXPECT_EQ(to->leftovers(kSoon), "");
  EXPECT_EQ(from->leftovers(kSoon), "");
}

TEST_F(NodeStale, a_location_that_was_learnt_before_everything_went_is_a_miss_and_is_forgotten) {
  const auto from = server(16);
  ASSERT_NE(from, nullptr);
  const auto to = reader(from->address());
  ASSERT_NE(to, nullptr);
  ASSERT_TRUE(wait_until([&] { return to->ready() == 1; })) << to->states();
  ASSERT_EQ(from->put(1, 0, 8), KVBM_OK);
  const std::vector<kvbm_key_t> keys = PoolMember::keys_of(1, 0, 8);
  ASSERT_EQ(to->load(keys, seconds(5), seconds(5)).right, 8U);
  // Stores other blocks in the same slots, as soon as the leases of the first ones have ended.
  ASSERT_TRUE(wait_until([&] { return from->put(2, 0, 16) == KVBM_OK; }, kSoon));
  const Loaded stale = to->load(keys, seconds(0), seconds(5));
  EXPECT_EQ(stale.hits, 8U) << "nobody was asked, so that it is believed to be there";
  EXPECT_EQ(stale.right + stale.wrong, 0U);
  EXPECT_EQ(stale.failed, 8U);
  EXPECT_EQ(to->load(keys, seconds(0), seconds(5)).hits, 0U) << "what is gone is believed no more";
  ASSERT_EQ(from->put(1, 0, 8), KVBM_OK);
  EXPECT_EQ(to->load(keys, seconds(5), seconds(5)).right, 8U) << "and is found again when it is there again";
}

TEST_F(NodeStale, a_node_that_came_back_with_other_blocks_is_believed_nothing_of_before) {
  auto from = server(16);
  ASSERT_NE(from, nullptr);
  const std::string address = from->address();
  const auto to = reader(address);
  ASSERT_NE(to, nullptr);
  ASSERT_EQ(from->put(1, 0, 8), KVBM_OK);
  ASSERT_TRUE(wait_until([&] { return to->ready() == 1; })) << to->states();
  const std::vector<kvbm_key_t> before = PoolMember::keys_of(1, 0, 8);
  const std::vector<kvbm_key_t> after = PoolMember::keys_of(2, 0, 8);
  ASSERT_EQ(to->load(before, seconds(5), seconds(5)).right, 8U);
  from.reset();
  ASSERT_TRUE(wait_until([&] { return to->ready() == 0; })) << to->states();
  const Loaded alone = to->load(before, milliseconds(200), seconds(2));
  EXPECT_EQ(alone.right + alone.wrong, 0U);
  ASSERT_TRUE(wait_until([&] { return (from = server(16, address)) != nullptr; }));
  ASSERT_EQ(from->put(2, 0, 8), KVBM_OK);
  ASSERT_TRUE(wait_until([&] { return to->ready() == 1; })) << to->states();
  const Loaded stale = to->load(before, seconds(5), seconds(5));
  EXPECT_EQ(stale.right + stale.wrong, 0U);
  EXPECT_EQ(to->load(after, seconds(5), seconds(5)).right, 8U);
}

TEST_F(NodeStale, blocks_of_a_namespace_that_was_invalidated_are_not_found_any_more) {
  const auto from = server(16);
  ASSERT_NE(from, nullptr);
  const auto to = reader(from->address());
  ASSERT_NE(to, nullptr);
  ASSERT_TRUE(wait_until([&] { return to->ready() == 1; })) << to->states();
  ASSERT_EQ(from->put(1, 0, 8), KVBM_OK);
  const std::vector<kvbm_key_t> keys = PoolMember::keys_of(1, 0, 8);
  ASSERT_EQ(to->load(keys, seconds(5), seconds(5)).right, 8U);
  ASSERT_EQ(kvbm_namespace_invalidate(to->ns(), nullptr), KVBM_OK);
  EXPECT_EQ(to->load(keys, seconds(5), seconds(5)).hits, 0U);
  // The invalidation reaches the node that had the blocks, which drops them too.
  EXPECT_TRUE(wait_until([&] { return from->stats().tiers[0].blocks == 0; })) << from->stats().tiers[0].blocks;
}

}  // namespace
}  // namespace kvbm::test::node_stale_test
