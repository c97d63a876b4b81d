// Several threads wait for blocks of another node at once: each drives the links while it waits, and runs the steps of
// its own load. Two managers in one process over loopback, both of which read from each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kvbm.h"
#include "support/opaque_store.h"

namespace node_wait_test {
namespace {

constexpr uint64_t kBlock = 300'000;  // more than is copied on the links' thread
constexpr uint32_t kBlocks = 6;
constexpr uint64_t kWaitNs = 30'000'000'000;

class Member {
 public:
  explicit Member(const std::string& peers) {
    const kvbm_setting_t settings[] = {
        {"node.listen", "127.0.0.1:0"}, {"node.peers", peers.c_str()}, {"node.pool", "wait"}};
    kvbm_context_options_t context;
    kvbm_context_options_init(&context, sizeof context);
    context.settings = settings;
    context.n_settings = std::size(settings);
    EXPECT_EQ(kvbm_context_create(&context, &context_, nullptr), KVBM_OK);
    kvbm_manager_options_t manager;
    kvbm_manager_options_init(&manager, sizeof manager);
    manager.block_bytes = kBlock;
    manager.host_capacity_bytes = 32U << 20;
    EXPECT_EQ(kvbm_manager_create(context_, &manager, &manager_, nullptr), KVBM_OK);
    kvbm_namespace_options_t ns;
    kvbm_namespace_options_init(&ns, sizeof ns);
    ns.model = "m";
    EXPECT_EQ(kvbm_namespace_open(manager_, &ns, &ns_, nullptr), KVBM_OK);
  }
  ~Member() {
    kvbm_namespace_release(ns_);
    kvbm_manager_release(manager_);
    kvbm_context_release(context_);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  [[nodiscard]] std::string address() const {
    char text[128] = {};
    size_t needed = 0;
    EXPECT_EQ(kvbm_manager_node_address(manager_, text, sizeof text, &needed), KVBM_OK);
    return text;
  }
  [[nodiscard]] std::vector<kvbm_key_t> keys(uint32_t salt) const {
    std::vector<uint32_t> tokens(kBlocks);
    std::iota(tokens.begin(), tokens.end(), salt);
    std::vector<kvbm_key_t> out(kBlocks);
    size_t made = 0;
    EXPECT_EQ(kvbm_key_chain(ns_, nullptr, tokens.data(), kBlocks, 1, nullptr, out.data(), kBlocks, &made), KVBM_OK);
    return out;
  }
  void fill(uint32_t salt) {
    const auto names = keys(salt);
    std::vector<kvbm_block_t> blocks(kBlocks);
    std::vector<kvbm_view_t> views(kBlocks);
    ASSERT_EQ(kvbm_manager_allocate(manager_, ns_, kBlocks, blocks.data(), nullptr, 0, nullptr), KVBM_OK);
    ASSERT_EQ(kvbm_block_view(manager_, blocks.data(), kBlocks, views.data()), KVBM_OK);
    for (uint32_t i = 0; i < kBlocks; ++i) std::memset(views[i].data, static_cast<int>(salt + i), kBlock);
    ASSERT_EQ(kvbm_manager_complete(manager_, blocks.data(), kBlocks, nullptr), KVBM_OK);
    ASSERT_EQ(kvbm_manager_register(manager_, ns_, blocks.data(), names.data(), kBlocks, nullptr), KVBM_OK);
    kvbm_block_release(manager_, blocks.data(), kBlocks);
  }
  bool wait_for_a_node() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < end) {
      kvbm_node_row_t rows[4];
      size_t n = 0;
      if (kvbm_manager_nodes(manager_, rows, 4, &n) != KVBM_OK) return false;
      for (size_t i = 0; i < n && i < 4; ++i) {
        if (std::strcmp(rows[i].state, "ready") == 0 && rows[i].capacity_bytes != 0) return true;
      }
      std::this_thread::yield();
    }
    return false;
  }

  // Loads the blocks repeatedly. Returns the number of right ones, and prints all other outcomes.
  uint32_t load(uint32_t salt, uint32_t times, bool keep, uint64_t timeout_ns) {
    std::vector<unsigned char> engine(kBlocks * kBlock);
    kvbm_cache_t* cache = nullptr;
    EXPECT_EQ(kvbm::test::attach_opaque(manager_, ns_, engine.data(), engine.size(), kBlock, &cache, nullptr), KVBM_OK);
    uint32_t right = 0;
    for (uint32_t i = 0; i < times; ++i) right += load_once(cache, engine, salt, keep, timeout_ns);
    kvbm_cache_release(cache);
    return right;
  }

 private:
  uint32_t load_once(kvbm_cache_t* cache, std::vector<unsigned char>& engine, uint32_t salt, bool keep,
                     uint64_t timeout_ns) {
    const auto names = keys(salt);
    std::vector<uint32_t> ids(kBlocks);
    std::iota(ids.begin(), ids.end(), 0U);
    std::vector<int32_t> status(kBlocks, KVBM_OK);
    kvbm_lookup_options_t lookup;
    kvbm_lookup_options_init(&lookup, sizeof lookup);
    lookup.ask_nodes_ns = kWaitNs;
    kvbm_load_options_t how;
    kvbm_load_options_init(&how, sizeof how);
    how.keep_below = keep ? 0 : 1;
    how.timeout_ns = timeout_ns;
    how.item_status = status.data();
    kvbm_match_t* match = nullptr;
    size_t hits = 0;
    EXPECT_EQ(kvbm_cache_lookup(cache, names.data(), kBlocks, &lookup, &match, &hits), KVBM_OK);
    EXPECT_EQ(hits, kBlocks);
    if (hits != kBlocks) return 0;
    std::memset(engine.data(), 0xEE, engine.size());
    (void)kvbm_cache_load(cache, match, ids.data(), kBlocks, &how, nullptr, 0);
    kvbm_match_release(match);
    const std::vector<unsigned char> copy = engine;  // a write after the end of the load is a race with this read
    uint32_t right = 0;
    for (uint32_t i = 0; i < kBlocks; ++i) {
      if (status[i] != KVBM_OK) {
        EXPECT_EQ(status[i], KVBM_ERR_DEADLINE);
        continue;
      }
      const auto byte = static_cast<unsigned char>(salt + i);
      const auto* block = copy.data() + i * kBlock;
      EXPECT_EQ(std::count(block, block + kBlock, byte), static_cast<std::ptrdiff_t>(kBlock));
      ++right;
    }
    return right;
  }

  kvbm_context_t* context_ = nullptr;
  kvbm_manager_t* manager_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
};

TEST(NodeWait, threads_that_wait_drive_the_links_of_both_nodes_and_each_gets_its_blocks) {
  Member a("");
  Member b(a.address());
  ASSERT_TRUE(a.wait_for_a_node());
  ASSERT_TRUE(b.wait_for_a_node());
  a.fill(10);
  a.fill(50);
  b.fill(90);
  constexpr uint32_t kTimes = 20;
  std::atomic<uint32_t> right{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] { right += b.load(10, kTimes, false, kWaitNs); });
  threads.emplace_back([&] { right += b.load(10, kTimes, false, kWaitNs); });
  threads.emplace_back([&] { right += b.load(50, kTimes, true, kWaitNs); });
  threads.emplace_back([&] { right += a.load(90, kTimes, false, kWaitNs); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right.load(), 4 * kTimes * kBlocks);
}

TEST(NodeWait, a_load_that_its_deadline_ends_leaves_the_engines_memory_alone_and_the_next_one_comes) {
  Member a("");
  Member b(a.address());
  ASSERT_TRUE(b.wait_for_a_node());
  a.fill(10);
  ASSERT_EQ(b.load(10, 1, false, kWaitNs), kBlocks);
  for (uint64_t timeout_ns = 1000; timeout_ns < 3'000'000; timeout_ns *= 2) (void)b.load(10, 3, false, timeout_ns);
  EXPECT_EQ(b.load(10, 1, false, kWaitNs), kBlocks);
}

}  // namespace
}  // namespace node_wait_test
