// Nodes of one machine as real processes, reading each other's host memory in place through the public interface: that
// they do, that an owner may be killed, frozen or rewrite its blocks at any moment, and that nothing is wrong or hangs.
// Each test starts its owner before this process has threads. Waits are bounded by kPatience and end when something
// happens. KVBMTEST_KILLS says how many owners are killed (default 50, long 300): that is noticed, and the next one
// serves at the same address, as soon as is promised (support/promise.h).
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/crypto/random.h"
#include "benchmark/node_pair.h"
#include "benchmark/statistics.h"
#include "support/child_signal.h"
#include "support/counts.h"
#include "support/promise.h"
#include "support/temp_dir.h"

namespace kvbm::node_same_host_test {
namespace {

using benchmark::NodeOwner;
using benchmark::NodePairOptions;
using benchmark::NodeReader;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(60);
constexpr uint64_t kBlock = 128 * 1024;
constexpr uint32_t kBlocks = 32;

bool wait_until(const std::function<bool()>& done) {
  const auto end = Clock::now() + kPatience;
  while (!done()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

NodePairOptions pair_of(const char* local = "auto") {
  NodePairOptions out;
  out.block_bytes = kBlock;
  out.blocks = kBlocks;
  out.host_bytes = out.reader_host_bytes = 8ULL << 20;  // faulted in whole, in each of two hundred processes
  out.local = local;
  return out;
}

kvbm_node_row_t row_of(const node::Member& member) {
  const auto rows = member.nodes();
  return rows.empty() ? kvbm_node_row_t{} : rows.front();
}

bool is_local(const node::Member& member) { return std::strcmp(row_of(member).path, "local") == 0; }

// Compares every byte of the last load.
bool all_right(const NodeReader& reader, size_t first, size_t n) {
  for (size_t i = first; i < first + n; ++i) {
    const std::byte* const block = reader.engine().data() + i * kBlock;
    if (block[0] == static_cast<std::byte>(i) && std::memcmp(block, block + 1, kBlock - 1) == 0) continue;
    size_t at = 0;
    while (at < kBlock && block[at] == static_cast<std::byte>(i)) ++at;
    std::printf("block %zu has %02x at %zu\n", i, std::to_integer<unsigned>(block[at]), at);
    return false;
  }
  return true;
}

// Loads all blocks until none comes over the link.
bool warm(NodeReader& reader) {
  return wait_until([&] { return is_local(reader.member()); }) && wait_until([&] {
           const uint64_t before = row_of(reader.member()).local_bytes;
           return reader.load(0, kBlocks).ok() && row_of(reader.member()).local_bytes - before == kBlocks * kBlock;
         });
}

double milliseconds_since(Clock::time_point then) {
  return std::chrono::duration<double, std::milli>(Clock::now() - then).count();
}

void print(const char* what, const std::vector<double>& ms) {
  std::printf("counted: %zu owners killed, %s after %.1f ms in the middle, %.1f ms at most\n", ms.size(), what,
              benchmark::median(ms), *std::max_element(ms.begin(), ms.end()));
}

class SameHostNodes : public ::testing::Test {
 protected:
  SameHostNodes() { ::setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1); }
  ~SameHostNodes() override { ::unsetenv("XDG_RUNTIME_DIR"); }
  test::TempDir folder_;
};

TEST_F(SameHostNodes, blocks_are_read_in_place_and_the_link_carries_none) {
  const auto owner = NodeOwner::start(pair_of());
  ASSERT_TRUE(owner.ok());
  auto reader = NodeReader::open(pair_of(), owner.value()->address());
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  ASSERT_TRUE(warm(*reader.value()));
  EXPECT_TRUE(all_right(*reader.value(), 0, kBlocks));
  const kvbm_node_row_t before = row_of(reader.value()->member());
  std::memset(reader.value()->engine().data(), 0xEE, reader.value()->engine().size());
  ASSERT_TRUE(reader.value()->load(0, kBlocks).ok());
  EXPECT_TRUE(all_right(*reader.value(), 0, kBlocks));
  const kvbm_node_row_t after = row_of(reader.value()->member());
  EXPECT_EQ(after.fetched_bytes, before.fetched_bytes);
  EXPECT_EQ(after.local_bytes - before.local_bytes, kBlocks * kBlock);
  EXPECT_STREQ(after.path_reason, "");
}

TEST_F(SameHostNodes, with_node_local_off_on_either_side_the_link_carries_all) {
  for (const bool owner_off : {true, false}) {
    const auto owner = NodeOwner::start(pair_of(owner_off ? "off" : "auto"));
    ASSERT_TRUE(owner.ok());
    auto reader = NodeReader::open(pair_of(owner_off ? "auto" : "off"), owner.value()->address());
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    ASSERT_TRUE(reader.value()->load(0, kBlocks).ok());
    EXPECT_TRUE(all_right(*reader.value(), 0, kBlocks));
    const kvbm_node_row_t row = row_of(reader.value()->member());
    EXPECT_EQ(row.local_bytes, 0U);
    EXPECT_GE(row.fetched_bytes, kBlocks * kBlock);
    EXPECT_STRNE(row.path, "local");
    EXPECT_NE(std::string(row.path_reason).find(owner_off ? "its node.local is off" : "node.local is off here"),
              std::string::npos)
        << row.path_reason;
  }
}

TEST_F(SameHostNodes, a_frozen_owner_is_read_as_before_also_when_its_link_is_given_up) {
  const auto owner = NodeOwner::start(pair_of());
  ASSERT_TRUE(owner.ok());
  auto reader = NodeReader::open(pair_of(), owner.value()->address());
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  ASSERT_TRUE(warm(*reader.value()));
  ASSERT_TRUE(test::signal_child(owner.value()->pid(), SIGSTOP));
  // While the link still seems to live, and after.
  uint64_t loads = 0;
  const bool given_up = wait_until([&] {
    std::memset(reader.value()->engine().data(), 0xEE, reader.value()->engine().size());
    if (!reader.value()->load(0, kBlocks).ok() || !all_right(*reader.value(), 0, kBlocks)) return true;
    ++loads;
    return std::strcmp(row_of(reader.value()->member()).state, "ready") != 0;
  });
  EXPECT_TRUE(given_up);
  EXPECT_GT(loads, 10U);
  EXPECT_TRUE(reader.value()->load(0, kBlocks).ok());
  EXPECT_TRUE(all_right(*reader.value(), 0, kBlocks));
  ASSERT_EQ(::kill(owner.value()->pid(), SIGCONT), 0);
  EXPECT_TRUE(wait_until([&] {
    return std::strcmp(row_of(reader.value()->member()).state, "ready") == 0 && is_local(reader.value()->member());
  }));
  EXPECT_TRUE(warm(*reader.value()));
}

TEST_F(SameHostNodes, owners_killed_in_the_middle_of_reads_cost_their_blocks_and_nothing_else) {
  const uint64_t kills = std::max<uint64_t>(1, test::count_from("KVBMTEST_KILLS", 50, 300));
  SystemRandom random;
  std::vector<double> noticed, served;
  test::Promise soon_noticed("a killed owner of memory that is read in place is noticed",
                             std::chrono::milliseconds(100));
  test::Promise soon_served("an owner that was started again serves", std::chrono::milliseconds(1000));
  for (uint64_t k = 0; k < kills && !HasFailure(); ++k) {
    const auto owner = NodeOwner::start(pair_of());
    ASSERT_TRUE(owner.ok());
    const auto next = NodeOwner::prepare(pair_of());
    ASSERT_TRUE(next.ok());
    auto opened = NodeReader::open(pair_of(), owner.value()->address());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    NodeReader& reader = *opened.value();
    ASSERT_TRUE(warm(reader));
    const test::Witness witness;  // the processes are there
    const auto delay = std::chrono::microseconds(random.below(20'000));
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> good{0}, bad{0}, wrong{0};
    std::thread loads([&] {
      while (!stop) {
        std::memset(reader.engine().data(), 0xEE, reader.engine().size());
        const bool ok = reader.load(0, kBlocks).ok();
        if (ok && !all_right(reader, 0, kBlocks)) ++wrong;
        ++(ok ? good : bad);
      }
    });
    std::this_thread::sleep_for(delay);
    ::kill(owner.value()->pid(), SIGKILL);
    const auto killed = Clock::now();
    EXPECT_TRUE(wait_until([&] { return !is_local(reader.member()); }));
    noticed.push_back(milliseconds_since(killed));
    soon_noticed.came(witness, killed);
    EXPECT_TRUE(wait_until([&] { return bad != 0; })) << "reads of a dead owner go on";
    stop = true;
    loads.join();
    EXPECT_EQ(wrong, 0U);
    ASSERT_TRUE(next.value()->begin(owner.value()->address()).ok());
    const auto listening = Clock::now();
    EXPECT_TRUE(wait_until([&] { return reader.load(0, kBlocks).ok(); })) << "the restarted owner does not serve";
    served.push_back(milliseconds_since(listening));
    soon_served.came(witness, listening);
    EXPECT_TRUE(all_right(reader, 0, kBlocks));
  }
  print("noticed", noticed);
  print("served again", served);
  soon_noticed.expect_kept();
  soon_served.expect_kept();
}

// ---- An owner that writes all the time ----

constexpr uint32_t kKeys = 4000;
constexpr uint64_t kRewritten = 64 * 1024;

uint64_t word_of(uint64_t block, uint64_t at) { return (block + 1) * 0x9E3779B97F4A7C15ULL + at; }

std::vector<kvbm_key_t> keys_of(const kvbm_namespace_t* ns) {
  std::vector<uint32_t> tokens(kKeys);
  for (uint32_t i = 0; i < kKeys; ++i) tokens[i] = i;
  std::vector<kvbm_key_t> keys(kKeys);
  size_t made = 0;
  EXPECT_EQ(kvbm_key_chain(ns, nullptr, tokens.data(), kKeys, 1, nullptr, keys.data(), kKeys, &made), KVBM_OK);
  return keys;
}

// Runs in the child: writes block after block into a host tier of few slots, so that each slot is soon reused.
void write_for_ever(int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  node::MemberOptions options;
  options.listen = "127.0.0.1:0";
  options.host_bytes = 12 * (kRewritten + 4096);
  options.block_bytes = kRewritten;
  auto member = node::Member::open(options);
  if (!member.ok()) ::_exit(1);
  const auto keys = keys_of(member.value()->ns());
  const std::string line = member.value()->address() + "\n";
  if (::write(out, line.data(), line.size()) < 0) ::_exit(1);
  for (uint32_t i = 0;; i = (i + 1) % kKeys) {
    kvbm_block_t block{};
    kvbm_view_t view{};
    kvbm_manager_t* const manager = member.value()->manager();
    if (kvbm_manager_allocate(manager, member.value()->ns(), 1, &block, nullptr, 0, nullptr) != KVBM_OK) continue;
    kvbm_block_view(manager, &block, 1, &view);
    for (uint64_t at = 0; at < kRewritten / 8; ++at) static_cast<uint64_t*>(view.data)[at] = word_of(i, at);
    if (kvbm_manager_complete(manager, &block, 1, nullptr) == KVBM_OK) {
      (void)kvbm_manager_register(manager, member.value()->ns(), &block, &keys[i], 1, nullptr);
    }
    kvbm_block_release(manager, &block, 1);
    // Pauses are long enough for a reader to request a block before it is evicted, and short enough that many are
    // evicted.
    if (i % 4 == 0) ::usleep(300);
  }
}

TEST_F(SameHostNodes, blocks_that_are_rewritten_while_they_are_read_are_misses_and_never_wrong) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) write_for_ever(ends[1]);
  ::close(ends[1]);
  char address[128] = {};
  ASSERT_GT(::read(ends[0], address, sizeof address - 1), 1);
  ::close(ends[0]);
  address[std::strcspn(address, "\n")] = '\0';
  {
    node::MemberOptions options;
    options.peers = address;
    options.host_bytes = 4 << 20;
    options.block_bytes = kRewritten;
    auto member = node::Member::open(options);
    ASSERT_TRUE(member.ok()) << member.status().message();
    ASSERT_TRUE(member.value()->wait_for_peers(20'000'000'000).ok());
    ASSERT_TRUE(wait_until([&] { return is_local(*member.value()); }));
    const auto keys = keys_of(member.value()->ns());
    std::vector<uint64_t> engine(kRewritten / 8);
    kvbm_tensor_t tensor{engine.data(), kRewritten, 0, kRewritten};
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_t options_of_cache;
    kvbm_cache_options_init(&options_of_cache, sizeof options_of_cache);
    options_of_cache.n_blocks = 1;
    options_of_cache.parts = &part;
    options_of_cache.n_parts = 1;
    kvbm_cache_t* cache = nullptr;
    ASSERT_EQ(kvbm_cache_attach(member.value()->manager(), member.value()->ns(), &options_of_cache, &cache, nullptr),
              KVBM_OK);
    uint64_t good = 0, missed = 0, wrong = 0;
    uint32_t next = 0;
    // Runs for some seconds, and longer until both outcomes have occurred.
    const auto enough = Clock::now() + std::chrono::seconds(4);
    const auto end = Clock::now() + kPatience;
    while (Clock::now() < enough || ((good == 0 || missed == 0) && Clock::now() < end)) {
      next = (next + 1) % kKeys;
      kvbm_lookup_options_t lookup;
      kvbm_lookup_options_init(&lookup, sizeof lookup);
      lookup.ask_nodes_ns = 1'000'000'000;
      kvbm_load_options_t load;
      kvbm_load_options_init(&load, sizeof load);
      load.keep_below = 1;
      // Looks the block up once and reads it several times, while the owner continues to write.
      for (int again = 0; again < 20; ++again) {
        kvbm_match_t* match = nullptr;
        size_t hits = 0;
        ASSERT_EQ(kvbm_cache_lookup(cache, &keys[next], 1, &lookup, &match, &hits), KVBM_OK);
        const uint32_t id = 0;
        const bool ok = hits == 1 && kvbm_cache_load(cache, match, &id, 1, &load, nullptr, 0) == KVBM_OK;
        kvbm_match_release(match);
        if (!ok) {
          missed += hits == 1 ? 1 : 0;
          break;
        }
        ++good;
        for (uint64_t at = 0; at < engine.size(); ++at) wrong += engine[at] != word_of(next, at) ? 1 : 0;
      }
    }
    kvbm_cache_release(cache);
    std::printf("%llu good, %llu gone meanwhile, in place %llu bytes\n", static_cast<unsigned long long>(good),
                static_cast<unsigned long long>(missed),
                static_cast<unsigned long long>(row_of(*member.value()).local_bytes));
    EXPECT_EQ(wrong, 0U);
    EXPECT_GT(good, 0U);
    EXPECT_GT(missed, 0U) << "nothing was rewritten while it was read";
    EXPECT_GT(row_of(*member.value()).local_bytes, 0U);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace kvbm::node_same_host_test
