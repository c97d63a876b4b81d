// Kills a process that stores through host memory and a disk tier, at random moments, and looks at
// what the next one finds: every byte that loads is right, and what a flush acknowledged is there.
// KVBMTEST_CRASH_CYCLES says how often (default 20). The parent never uses the library, so that each
// child starts as a fresh process of an engine would.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "kvbm.h"
#include "support/counts.h"
#include "support/opaque_store.h"

namespace crash_test {
namespace {

constexpr uint64_t kBlockBytes = 16 * 1024;
constexpr uint32_t kBatch = 16;
constexpr uint64_t kLookBack = 1000;  // 16 MiB, far below the disk's capacity

// Results in memory that survives the child.
struct Ledger {
  static constexpr size_t kBatches = 1 << 20;
  std::atomic<uint64_t> begun;  // blocks that a store was ever asked for
  // By batch: whether a flush after its store has returned. False for a batch that a kill interrupted.
  std::atomic<uint8_t> acknowledged[kBatches];
  std::atomic<uint64_t> looked, found, wrong;
};

class Store : private kvbm::test::OpaqueStore {
 public:
  explicit Store(const std::string& path) {
    kvbm_tier_t disk{};
    disk.path = path.c_str();
    disk.capacity_bytes = 1ULL << 30;  // every restart begins a new segment: nothing is evicted here
    kvbm_manager_options_t options;
    kvbm_manager_options_init(&options, sizeof options);
    options.block_bytes = kBlockBytes;
    options.host_capacity_bytes = 4ULL << 20;
    options.tiers = &disk;
    options.n_tiers = 1;
    ok_ = open(options, "crash test", kBatch) == KVBM_OK;
    if (!ok_) std::fprintf(stderr, "open: %s\n", error());
  }

  [[nodiscard]] bool ok() const { return ok_; }

  bool store(uint64_t first) {
    kvbm_key_t keys[kBatch];
    uint32_t ids[kBatch];
    for (uint32_t i = 0; i < kBatch; ++i) {
      fill(first + i, block(i));
      keys[i] = key(first + i);
      ids[i] = i;
    }
    kvbm_store_options_t options;
    kvbm_store_options_init(&options, sizeof options);
    options.unchained = 1;
    return kvbm_cache_store(cache(), keys, ids, kBatch, &options, nullptr, 0) == KVBM_OK;
  }
  bool flush() { return kvbm_manager_flush(manager(), 60'000'000'000ULL) == KVBM_OK; }

  // Returns whether the block is there. Counts wrong bytes.
  bool load(uint64_t id, Ledger& ledger) {
    const kvbm_key_t name = key(id);
    kvbm_match_t* match = nullptr;
    size_t n = 0;
    if (kvbm_cache_lookup(cache(), &name, 1, nullptr, &match, &n) != KVBM_OK || n == 0) return false;
    const uint32_t to = 0;
    const kvbm_status_t loaded = kvbm_cache_load(cache(), match, &to, 1, nullptr, nullptr, 0);
    kvbm_match_release(match);
    if (loaded != KVBM_OK) return false;
    if (!is(id, block(0))) ledger.wrong.fetch_add(1);
    return true;
  }

 private:
  bool ok_ = false;
};

[[noreturn]] void write_until_killed(const std::string& path, Ledger& ledger, int pipe) {
  Store store(path);
  if (!store.ok()) _exit(1);
  std::vector<uint64_t> waiting;
  for (;;) {
    const uint64_t first = ledger.begun.fetch_add(kBatch);
    if (first / kBatch >= Ledger::kBatches || !store.store(first)) _exit(1);
    waiting.push_back(first / kBatch);
    if (first >= 64) store.load(first - 64, ledger);
    if ((first / kBatch) % 4 == 3) {
      if (!store.flush()) _exit(1);
      for (const uint64_t batch : waiting) ledger.acknowledged[batch].store(1);
      waiting.clear();
    }
    if (write(pipe, "x", 1) != 1) _exit(1);
  }
}

[[noreturn]] void look(const std::string& path, Ledger& ledger) {
  {
    Store store(path);
    if (!store.ok()) _exit(1);
    const uint64_t end = ledger.begun;
    for (uint64_t id = end < kLookBack ? 0 : end - kLookBack; id < end; ++id) {
      const bool there = store.load(id, ledger);
      if (ledger.acknowledged[id / kBatch].load() == 0) continue;
      ledger.looked.fetch_add(1);
      if (there) ledger.found.fetch_add(1);
    }
  }
  _exit(0);
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

TEST(Crash, keeps_what_was_flushed_and_serves_no_wrong_byte) {
  const char* text = std::getenv("KVBMTEST_CRASH_CYCLES");
  const int cycles = text != nullptr ? std::atoi(text) : 20;
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu, %d cycles\n", static_cast<unsigned long long>(seed), cycles);
  std::mt19937_64 random(seed);
  std::string path = (std::filesystem::temp_directory_path() / "kvbm_crash_XXXXXX").string();
  ASSERT_NE(mkdtemp(path.data()), nullptr);
  void* shared = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Ledger& ledger = *new (shared) Ledger{};
  for (int cycle = 0; cycle < cycles; ++cycle) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t writer = fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      close(ends[0]);
      write_until_killed(path, ledger, ends[1]);
    }
    close(ends[1]);
    char byte = 0;
    bool alive = true;
    for (uint64_t steps = 4 + random() % 60; steps != 0 && alive; --steps) alive = read(ends[0], &byte, 1) == 1;
    kill(writer, SIGKILL);
    const int ended = wait_for(writer);
    close(ends[0]);
    ASSERT_TRUE(alive && WIFSIGNALED(ended)) << "the writer gave up in cycle " << cycle;
    const pid_t reader = fork();
    ASSERT_GE(reader, 0);
    if (reader == 0) look(path, ledger);
    ASSERT_EQ(wait_for(reader), 0) << "the directory did not open in cycle " << cycle;
  }
  kvbm::test::counted(static_cast<uint64_t>(cycles), "kills");
  const uint64_t looked = ledger.looked;
  const uint64_t found = ledger.found;
  std::printf("%llu acknowledged blocks looked for, %llu found, %llu wrong\n", static_cast<unsigned long long>(looked),
              static_cast<unsigned long long>(found), static_cast<unsigned long long>(ledger.wrong.load()));
  EXPECT_EQ(ledger.wrong.load(), 0U);
  EXPECT_GT(looked, 0U);
  EXPECT_GE(static_cast<double>(found), 0.99 * static_cast<double>(looked));
  munmap(shared, sizeof(Ledger));
  std::filesystem::remove_all(path);
}
}  // namespace crash_test
