// Batches of 100,000 entries through the C interface over two nodes: looked up, loaded, offered. They work whole, and
// take no more memory than they are given. KVBMTEST_ENTRIES says how many.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <thread>

#include "support/counts.h"
#include "support/pool_member.h"

namespace kvbm::test::node_batch_test {
namespace {

using std::chrono::seconds;

constexpr uint64_t kBlock = 1024;
constexpr uint64_t kStaging = 8 << 20;

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

class NodeBatch : public testing::Test {
 protected:
  const size_t n_ = count_from("KVBMTEST_ENTRIES", 100'000, 100'000);

  // Runs `work`, and reads the member's metrics meanwhile. Returns the most bytes of staging that were in use.
  static uint64_t most_staging(PoolMember& member, const std::function<void()>& work) {
    std::atomic<bool> over{false};
    uint64_t most = 0;
    std::thread watcher([&] {
      while (!over) {
        most = std::max(most, member.staging_in_use());
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    work();
    over = true;
    watcher.join();
    return most;
  }

  MemberSetup setup(const char* name, uint64_t host_blocks, size_t engine_blocks) const {
    MemberSetup out;
    out.name = name;
    out.block_bytes = kBlock;
    out.host_blocks = host_blocks;
    out.engine_blocks = static_cast<uint32_t>(engine_blocks);
    out.staging_bytes = kStaging;
    return out;
  }
};

TEST_F(NodeBatch, a_hundred_thousand_blocks_are_found_and_loaded_in_one_call_each) {
  const auto server = PoolMember::open(setup("server", n_, 0));
  ASSERT_NE(server, nullptr);
  ASSERT_GE(server->slots(), n_);
  ASSERT_EQ(server->put(1, 0, n_), KVBM_OK);
  // The reader's host is far smaller than what it loads.
  MemberSetup small = setup("reader", 4096, n_);
  small.listen = "";
  small.peers = server->address();
  const auto reader = PoolMember::open(small);
  ASSERT_NE(reader, nullptr);
  ASSERT_TRUE(wait_until([&] { return reader->ready() == 1; })) << reader->states();
  const std::vector<kvbm_key_t> keys = PoolMember::keys_of(1, 0, n_);
  const uint64_t memory = resident_bytes();
  Loaded all;
  const uint64_t staged = most_staging(*reader, [&] { all = reader->load(keys, seconds(60), seconds(120)); });
  const uint64_t grown = resident_bytes() - std::min(memory, resident_bytes());
  std::printf("%zu asked, %zu found, %zu right in %lld ms; staging %llu KiB at most, %llu KiB more memory\n", all.asked,
              all.hits, all.right, static_cast<long long>(all.took.count() / 1'000'000),
              static_cast<unsigned long long>(staged >> 10), static_cast<unsigned long long>(grown >> 10));
  EXPECT_EQ(all.status, KVBM_OK) << kvbm_status_name(all.status);
  EXPECT_EQ(all.hits, n_);
  EXPECT_EQ(all.right, n_);
  EXPECT_EQ(all.wrong, 0U);
  EXPECT_LE(staged, kStaging);
  EXPECT_EQ(reader->leftovers(std::chrono::milliseconds(60'000)), "");
  EXPECT_EQ(server->leftovers(std::chrono::milliseconds(60'000)), "");
}

TEST_F(NodeBatch, a_hundred_thousand_blocks_are_offered_in_one_call) {
  const auto taker = PoolMember::open(setup("taker", n_, 0));
  ASSERT_NE(taker, nullptr);
  MemberSetup with_peer = setup("writer", n_, 0);
  with_peer.listen = "";
  with_peer.peers = taker->address();
  const auto writer = PoolMember::open(with_peer);
  ASSERT_NE(writer, nullptr);
  ASSERT_TRUE(wait_until([&] { return writer->ready() == 1; })) << writer->states();
  ASSERT_EQ(writer->put(2, 0, n_), KVBM_OK);
  kvbm_status_t offered = KVBM_ERR_INTERNAL;
  const auto begun = std::chrono::steady_clock::now();
  const uint64_t staged = most_staging(*taker, [&] { offered = writer->offer(2, 0, n_); });
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
  const uint64_t there = taker->stats().tiers[0].blocks;
  std::printf("%zu offered, %llu there in %lld ms; staging %llu KiB at most\n", n_,
              static_cast<unsigned long long>(there), static_cast<long long>(took.count()),
              static_cast<unsigned long long>(staged >> 10));
  EXPECT_EQ(offered, KVBM_OK) << kvbm_status_name(offered);
  EXPECT_EQ(there, n_);
  EXPECT_LE(staged, kStaging);
  size_t checked = 0;
  EXPECT_EQ(taker->wrong_in_host(&checked), 0U);
  EXPECT_EQ(checked, n_);
  EXPECT_EQ(writer->leftovers(std::chrono::milliseconds(60'000)), "");
  EXPECT_EQ(taker->leftovers(std::chrono::milliseconds(60'000)), "");
}

}  // namespace
}  // namespace kvbm::test::node_batch_test
