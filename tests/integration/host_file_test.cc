// Kills processes with a host tier in a file, at random moments, and inspects what the next process finds there.
// Every byte that is loaded or seen in a view is the stored one, dropped blocks stay absent, and most of the others
// are found again. KVBMTEST_CRASH_CYCLES is the number of kills (default 20). The parent never uses the library.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "kvbm.h"
#include "support/counts.h"
#include "support/opaque_store.h"
#include "support/temp_dir.h"

namespace host_file_test {
namespace {

constexpr uint64_t kBlockBytes = 16 * 1024;
constexpr uint32_t kBatch = 8;
constexpr uint64_t kNames = 160;  // different keys: more than the host has slots for
constexpr uint64_t kHostBlocks = 96;

// Results in memory that survives the children.
struct Ledger {
  // Of each name, the number of the last forgetting that had returned when it was last stored. The numbers go on over
  // all processes.
  std::atomic<uint64_t> forgotten;       // forgettings that have returned
  std::atomic<uint64_t> stored[kNames];  // 1 + forgotten, from before the store began; 0: never
  std::atomic<uint64_t> looked, found, wrong, revived, forgettings, seen;
};

class Process : private kvbm::test::OpaqueStore {
 public:
  Process(const std::string& path, uint64_t seed) : random_(seed) {
    kvbm_manager_options_t options;
    kvbm_manager_options_init(&options, sizeof options);
    options.block_bytes = kBlockBytes;
    options.host_capacity_bytes = kHostBlocks * (kBlockBytes + 512);
    options.host_file = path.c_str();
    const kvbm_tier_t none{};
    options.tiers = &none;  // and none of the configuration
    options.n_tiers = 0;
    ok_ = open(options, "host file test", kBatch) == KVBM_OK;
    if (!ok_) std::fprintf(stderr, "open: %s\n", error());
  }

  [[nodiscard]] bool ok() const { return ok_; }

  void store(Ledger& ledger) {
    kvbm_key_t keys[kBatch];
    uint32_t ids[kBatch];
    const uint64_t first = random_() % kNames;
    for (uint32_t i = 0; i < kBatch; ++i) {
      const uint64_t name = (first + i) % kNames;
      ledger.stored[name].store(1 + ledger.forgotten.load());
      fill(name, block(i));
      keys[i] = key(name);
      ids[i] = i;
    }
    kvbm_store_options_t options;
    kvbm_store_options_init(&options, sizeof options);
    options.unchained = 1;
    kvbm_cache_store(cache(), keys, ids, kBatch, &options, nullptr, 0);
  }

  // Acts as a user of managed blocks: writes into slots of evicted blocks, registers them, or releases them half
  // written.
  void pool(Ledger& ledger) {
    kvbm_block_t blocks[kBatch];
    kvbm_view_t views[kBatch];
    kvbm_key_t keys[kBatch];
    if (kvbm_manager_allocate(manager(), ns(), kBatch, blocks, nullptr, 0, nullptr) != KVBM_OK) return;
    kvbm_block_view(manager(), blocks, kBatch, views);
    const uint64_t first = random_() % kNames;
    const bool registers = random_() % 2 == 0;
    for (uint32_t i = 0; i < kBatch; ++i) {
      const uint64_t name = (first + i) % kNames;
      keys[i] = key(name);
      if (registers) ledger.stored[name].store(1 + ledger.forgotten.load());
      std::memset(views[i].data, 'z', kBlockBytes);
      if (registers) fill(name, views[i].data);
    }
    if (registers && kvbm_manager_complete(manager(), blocks, kBatch, nullptr) == KVBM_OK) {
      kvbm_register_options_t options;
      kvbm_register_options_init(&options, sizeof options);
      options.unchained = 1;
      if (kvbm_manager_register(manager(), ns(), blocks, keys, kBatch, &options) == KVBM_OK &&
          kvbm_block_view(manager(), blocks, kBatch, views) == KVBM_OK) {
        // A duplicate's hold names the block that was there before.
        for (uint32_t i = 0; i < kBatch; ++i) ledger.wrong += is((first + i) % kNames, views[i].data) ? 0 : 1;
      }
    }
    kvbm_block_release(manager(), blocks, kBatch);
  }

  void forget(Ledger& ledger) {
    const uint64_t what = random_() % 3;
    kvbm_error_t error{};
    const kvbm_status_t done = what == 0   ? kvbm_manager_reset(manager(), &error)
                               : what == 1 ? kvbm_namespace_reset(ns(), &error)
                                           : kvbm_namespace_invalidate(ns(), &error);
    if (done != KVBM_OK) ++ledger.wrong;
    ++ledger.forgotten;
    ++ledger.forgettings;
  }

  // Checks everything that is found, by loads and in views.
  void look(Ledger& ledger) {
    for (uint64_t name = 0; name < kNames; ++name) {
      const kvbm_key_t wanted = key(name);
      kvbm_match_t* match = nullptr;
      size_t hits = 0;
      const uint64_t stored = ledger.stored[name].load();
      ++ledger.looked;
      if (kvbm_cache_lookup(cache(), &wanted, 1, nullptr, &match, &hits) != KVBM_OK || hits == 0) continue;
      ++ledger.found;
      // Only blocks of stores that began after the last erase returned may be found.
      if (stored < 1 + ledger.forgotten.load()) ++ledger.revived;
      kvbm_block_t held = 0;
      kvbm_view_t view{};
      if (name % 2 == 0) {
        const uint32_t id = 0;
        if (kvbm_cache_load(cache(), match, &id, 1, nullptr, nullptr, 0) != KVBM_OK)
          ++ledger.wrong;
        else
          ledger.wrong += is(name, block(0)) ? 0 : 1;
      } else if (kvbm_match_blocks(match, 0, 0, 1, &held) == KVBM_OK && held != 0) {
        if (kvbm_block_view(manager(), &held, 1, &view) != KVBM_OK || !is(name, view.data)) ++ledger.wrong;
        kvbm_block_release(manager(), &held, 1);
      } else {
        ++ledger.wrong;  // after a kill, a block that is found must have its own bytes
      }
      ++ledger.seen;
      kvbm_match_release(match);
    }
  }

  uint64_t random() { return random_(); }

 private:
  std::mt19937_64 random_;
  bool ok_ = false;
};

// The process first inspects what its predecessor left, then stores and drops until it is killed.
[[noreturn]] void work_until_killed(const std::string& path, uint64_t seed, Ledger& ledger, int pipe) {
  Process process(path, seed);
  if (!process.ok()) _exit(1);
  process.look(ledger);
  for (;;) {
    const uint64_t what = process.random() % 64;
    if (what < 40)
      process.store(ledger);
    else if (what < 62)
      process.pool(ledger);
    else
      process.forget(ledger);
    if (write(pipe, "x", 1) != 1) _exit(1);
  }
}

}  // namespace

TEST(HostFile, survives_kills_without_a_wrong_or_a_forgotten_block) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no tmpfs at /dev/shm";
  const char* text = std::getenv("KVBMTEST_CRASH_CYCLES");
  const int cycles = text != nullptr ? std::atoi(text) : 20;
  std::mt19937_64 random(std::random_device{}());
  const kvbm::test::TempDir directory("/dev/shm");
  const std::string path = directory.path() + "/host";
  void* shared = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Ledger& ledger = *new (shared) Ledger{};
  for (int cycle = 0; cycle < cycles; ++cycle) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const uint64_t seed = random();
    const pid_t worker = fork();
    ASSERT_GE(worker, 0);
    if (worker == 0) {
      close(ends[0]);
      work_until_killed(path, seed, ledger, ends[1]);
    }
    close(ends[1]);
    char byte = 0;
    bool alive = true;
    for (uint64_t steps = 1 + random() % 120; steps != 0 && alive; --steps) alive = read(ends[0], &byte, 1) == 1;
    // Kills at a random moment between two steps, too, and not only just after a report.
    for (uint64_t spins = random() % 200'000; spins != 0; --spins) asm volatile("" ::: "memory");
    kill(worker, SIGKILL);
    int ended = 0;
    while (waitpid(worker, &ended, 0) < 0 && errno == EINTR) {
    }
    close(ends[0]);
    ASSERT_TRUE(alive && WIFSIGNALED(ended)) << "the process gave up in cycle " << cycle << ", seed " << seed;
    ASSERT_EQ(ledger.wrong.load(), 0U) << "cycle " << cycle << ", seed " << seed;
    ASSERT_EQ(ledger.revived.load(), 0U) << "cycle " << cycle << ", seed " << seed;
  }
  kvbm::test::counted(static_cast<uint64_t>(cycles), "kills");
  std::printf("%llu blocks found after a kill, of %llu names looked for; %llu times everything was forgotten\n",
              static_cast<unsigned long long>(ledger.found.load()),
              static_cast<unsigned long long>(ledger.looked.load()),
              static_cast<unsigned long long>(ledger.forgettings.load()));
  if (cycles >= 20) {
    EXPECT_GT(ledger.seen.load(), 0U);
    EXPECT_GT(ledger.forgettings.load(), 0U);
  }
  munmap(shared, sizeof(Ledger));
}
}  // namespace host_file_test
