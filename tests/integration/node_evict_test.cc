// Blocks that a node evicts go to other nodes (node.admission = on_eviction), in processes of their own over TCP.
// They are read back with the right bytes, also when the chosen node is full, gone or frozen: then the next node has
// them.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "support/counts.h"
#include "support/member_process.h"

namespace kvbm::test::node_evict_test {
namespace {

using std::chrono::milliseconds;

// Time limit far above the usual time, because the machine may be busy.
constexpr milliseconds kSoon{60'000};
constexpr uint64_t kFlushNs = 60'000'000'000;
constexpr uint64_t kSalt = 7;
constexpr uint64_t kOthersSalt = 8;
constexpr uint64_t kHostBlocks = 16;
constexpr uint64_t kRoom = 256;  // blocks of the node that takes
constexpr uint64_t kPut = 64;    // blocks of the node that evicts

MemberSetup setup_of(const char* name, uint64_t host_blocks, const std::string& peers = "") {
  MemberSetup setup;
  setup.name = name;
  setup.peers = peers;
  setup.host_blocks = host_blocks;
  setup.engine_blocks = kPut;
  setup.block_bytes = 64 << 10;
  return setup;
}

uint64_t metric(const PoolMember& member, const std::string& name) {
  const std::string text = member.metrics();
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? UINT64_MAX : std::strtoull(text.c_str() + at + name.size() + 2, nullptr, 10);
}

class NodeEvict : public testing::Test {
 protected:
  // Opens the node that evicts, with a host of kHostBlocks.
  void open(const std::string& peers, size_t ready) {
    MemberSetup setup = setup_of("evicts", kHostBlocks, peers);
    setup.listen = "";
    setup.settings = {{"node.admission", "on_eviction"}};
    member_ = PoolMember::open(setup);
    ASSERT_NE(member_, nullptr);
    ASSERT_TRUE(wait_until([&] { return member_->ready() == ready; }, kSoon)) << member_->states();
  }

  // Stores one block at a time, so that each is offloaded before the next one needs its slot.
  void put(uint64_t first, uint64_t n) {
    for (uint64_t i = first; i < first + n; ++i) {
      ASSERT_EQ(member_->put(kSalt, i, 1), KVBM_OK) << i;
      ASSERT_EQ(kvbm_manager_flush(member_->manager(), kFlushNs), KVBM_OK) << i;
    }
  }

  // Loads one block at a time, because the small host has room for few.
  Loaded load(PoolMember& from, uint64_t first, uint64_t n) {
    Loaded all;
    for (uint64_t i = first; i < first + n; ++i) {
      const Loaded one = from.load(PoolMember::keys_of(kSalt, i, 1), kSoon, kSoon);
      all.hits += one.hits, all.right += one.right, all.wrong += one.wrong;
    }
    return all;
  }

  // Includes blocks that another node was still reading when the host needed their slots.
  void expect_all(PoolMember& from, uint64_t first, uint64_t n) {
    const Loaded loaded = load(from, first, n);
    EXPECT_EQ(loaded.wrong, 0U);
    EXPECT_EQ(loaded.right, n) << loaded.hits << " hits\n" << from.states() << from.log() << from.metrics();
  }

  // Returns the blocks that have left this member's host.
  std::vector<uint64_t> gone(uint64_t first, uint64_t n) {
    std::vector<uint64_t> out;
    for (uint64_t i = first; i < first + n; ++i) {
      const kvbm_key_t key = PoolMember::key_of(kSalt, i);
      kvbm_lookup_options_t options;
      kvbm_lookup_options_init(&options, sizeof options);
      options.host_only = 1;
      options.mode = KVBM_LOOKUP_EACH;
      kvbm_match_t* match = nullptr;
      size_t hits = 0;
      EXPECT_EQ(kvbm_manager_lookup(member_->manager(), member_->ns(), &key, 1, &options, &match, &hits), KVBM_OK);
      kvbm_match_release(match);
      if (hits == 0) out.push_back(i);
    }
    return out;
  }

  std::unique_ptr<PoolMember> member_;
};

TEST_F(NodeEvict, what_is_let_go_here_is_at_another_node_and_comes_back) {
  MemberProcess other;
  ASSERT_TRUE(other.start(MemberRole::take, setup_of("other", kRoom), kSalt));
  open(other.address(), 1);
  put(0, kPut);
  const kvbm_manager_stats_t stats = member_->stats();
  EXPECT_GE(stats.tiers[0].evictions, kPut - kHostBlocks);
  EXPECT_EQ(metric(*member_, "kvbm_node_offers_refused_total"), 0U);
  expect_all(*member_, 0, kPut);
  EXPECT_EQ(member_->leftovers(kSoon), "");
}

// A node does not push such blocks on, since full nodes would pass them around forever. It counts them as lost.
TEST_F(NodeEvict, what_the_other_node_lets_go_in_its_turn_is_counted_there) {
  const auto other = PoolMember::open(setup_of("other", kHostBlocks));
  ASSERT_NE(other, nullptr);
  open(other->address(), 1);
  put(0, kPut);
  const Loaded loaded = load(*member_, 0, kPut);
  EXPECT_EQ(loaded.wrong, 0U);
  EXPECT_LT(loaded.right, kPut) << "two hosts hold half of them";
  const uint64_t told =
      metric(*other, "kvbm_given_blocks_lost_total") + metric(*member_, "kvbm_node_offers_refused_total");
  EXPECT_GE(loaded.right + told, kPut);
  EXPECT_EQ(metric(*member_, "kvbm_offloads_skipped_total"), 0U);
  EXPECT_EQ(member_->leftovers(kSoon), "");
}

TEST_F(NodeEvict, what_a_full_node_has_no_room_for_goes_to_the_next_one) {
  MemberProcess full;
  MemberProcess roomy;
  ASSERT_TRUE(full.start(MemberRole::full, setup_of("full", kRoom), kOthersSalt));
  ASSERT_TRUE(roomy.start(MemberRole::take, setup_of("roomy", kRoom), kSalt));
  open(full.address() + "," + roomy.address(), 2);
  put(0, kPut);
  const uint64_t refused = metric(*member_, "kvbm_node_offers_refused_total");
  EXPECT_GT(refused, 0U) << "no block has the full node as its home";
  EXPECT_EQ(metric(*member_, "kvbm_node_offers_elsewhere_total"), refused);
  const std::vector<uint64_t> left = gone(0, kPut);
  EXPECT_GE(left.size(), kPut - kHostBlocks);
  expect_all(*member_, 0, kPut);
  // A member that joins later finds them too.
  const auto late = PoolMember::open(setup_of("late", kHostBlocks, full.address() + "," + roomy.address()));
  ASSERT_NE(late, nullptr);
  ASSERT_TRUE(wait_until([&] { return late->ready() == 2; }, kSoon)) << late->states();
  uint64_t found = 0;
  for (const uint64_t i : left) {
    const Loaded one = load(*late, i, 1);
    EXPECT_EQ(one.wrong, 0U);
    found += one.right;
  }
  EXPECT_EQ(found, left.size());
  EXPECT_EQ(member_->leftovers(kSoon), "");
}

TEST_F(NodeEvict, what_a_killed_node_should_have_had_is_at_the_next_one) {
  MemberProcess killed;
  MemberProcess other;
  ASSERT_TRUE(killed.start(MemberRole::take, setup_of("killed", kRoom), kSalt));
  ASSERT_TRUE(other.start(MemberRole::take, setup_of("other", kRoom), kSalt));
  open(killed.address() + "," + other.address(), 2);
  put(0, kPut / 2);
  killed.kill_it();
  put(kPut / 2, kPut);  // the first ones find out that it is gone
  expect_all(*member_, kPut / 2, kPut);
  EXPECT_EQ(load(*member_, 0, kPut / 2).wrong, 0U);
  EXPECT_EQ(member_->leftovers(kSoon), "");
}

TEST_F(NodeEvict, what_a_frozen_node_does_not_take_is_at_the_next_one_and_stays_right_when_it_is_back) {
  MemberProcess frozen;
  MemberProcess other;
  ASSERT_TRUE(frozen.start(MemberRole::take, setup_of("frozen", kRoom), kSalt));
  ASSERT_TRUE(other.start(MemberRole::take, setup_of("other", kRoom), kSalt));
  open(frozen.address() + "," + other.address(), 2);
  put(0, kHostBlocks);
  frozen.signal(SIGSTOP);
  put(kHostBlocks, kPut);
  EXPECT_GT(metric(*member_, "kvbm_node_offers_refused_total"), 0U);
  EXPECT_GT(metric(*member_, "kvbm_node_offers_elsewhere_total"), 0U);
  expect_all(*member_, kHostBlocks, kPut);
  frozen.signal(SIGCONT);
  ASSERT_TRUE(wait_until([&] { return member_->ready() == 2; }, kSoon)) << member_->states();
  expect_all(*member_, kHostBlocks, kPut);
  EXPECT_EQ(member_->leftovers(kSoon), "");
}

}  // namespace
}  // namespace kvbm::test::node_evict_test
