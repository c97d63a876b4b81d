// Prompts that are longer than the host: stored in pieces by two engines at once, found whole and loaded whole, in
// every policy and above every kind of tier, with hosts of a few blocks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kvbm.h"
#include "support/run_command.h"
#include "support/temp_dir.h"

extern char** environ;

namespace kvbm::chain_test {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kSlot = kBlock + 512;  // at least what a block takes with its head

uint64_t host_of(uint32_t blocks) { return 4096 + blocks * kSlot; }

// Makes every second word alike, so that half of a block can be compressed.
uint64_t word_of(uint64_t block, uint64_t i) {
  return i % 2 != 0 ? 0 : (block + 1) * 0x9E3779B97F4A7C15ULL ^ (i * 0xBF58476D1CE4E5B9ULL);
}

// One engine: `n` blocks of memory, and a prompt of as many.
class Engine {
 public:
  Engine(kvbm_manager_t* manager, kvbm_namespace_t* ns, uint64_t prompt, size_t n)
      : prompt_(prompt), memory_(n * kBlock / 8), ids_(n), status_(n) {
    kvbm_tensor_t tensor{memory_.data(), memory_.size() * 8, 0, kBlock};
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_t options;
    kvbm_cache_options_init(&options, sizeof options);
    options.n_blocks = static_cast<uint32_t>(n);
    options.parts = &part;
    options.n_parts = 1;
    kvbm_error_t error{};
    EXPECT_EQ(kvbm_cache_attach(manager, ns, &options, &cache_, &error), KVBM_OK) << error.message;
    std::vector<uint32_t> tokens(n);
    for (size_t i = 0; i < n; ++i) ids_[i] = tokens[i] = static_cast<uint32_t>(i);
    tokens[0] += static_cast<uint32_t>(prompt << 20);
    keys_.resize(n);
    size_t made = 0;
    EXPECT_EQ(kvbm_key_chain(ns, nullptr, tokens.data(), n, 1, nullptr, keys_.data(), n, &made), KVBM_OK);
  }
  ~Engine() { kvbm_cache_release(cache_); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Stores the prompt in pieces. Returns the number of stored blocks.
  size_t store(size_t piece) {
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = word_at(i);
    size_t stored = 0;
    for (size_t first = 0; first < keys_.size(); first += piece) {
      const size_t n = std::min(piece, keys_.size() - first);
      kvbm_store_options_t options;
      kvbm_store_options_init(&options, sizeof options);
      if (first != 0) options.parent = &keys_[first - 1];
      options.item_status = status_.data();
      std::fill_n(status_.begin(), n, KVBM_ERR_INTERNAL);
      kvbm_cache_store(cache_, keys_.data() + first, ids_.data() + first, n, &options, nullptr, 0);
      stored += static_cast<size_t>(std::count(status_.begin(), status_.begin() + static_cast<ptrdiff_t>(n), KVBM_OK));
      for (size_t i = 0; i < n; ++i) {
        if (status_[i] == KVBM_OK) continue;
        if (!refused_.empty()) refused_ += ", ";
        refused_ += std::to_string(first + i) + ": " + kvbm_status_text(status_[i]);
      }
    }
    return stored;
  }
  // Returns the blocks that were not stored or not loaded, with the reasons.
  [[nodiscard]] const std::string& refused() const { return refused_; }
  // Returns the length of the prefix that is found.
  [[nodiscard]] size_t find() {
    kvbm_match_t* match = nullptr;
    size_t hits = 0;
    EXPECT_EQ(kvbm_cache_lookup(cache_, keys_.data(), keys_.size(), nullptr, &match, &hits), KVBM_OK);
    kvbm_match_release(match);
    return hits;
  }
  // Loads the prompt, `piece` blocks at a time. Returns the number of right leading blocks. A wrong block fails the
  // test.
  size_t load(size_t piece) {
    std::fill(memory_.begin(), memory_.end(), 0xEE);
    for (size_t first = 0; first < keys_.size(); first += piece) {
      const size_t n = std::min(piece, keys_.size() - first);
      kvbm_match_t* match = nullptr;
      size_t hits = 0;
      EXPECT_EQ(kvbm_cache_lookup(cache_, keys_.data() + first, n, nullptr, &match, &hits), KVBM_OK);
      std::fill_n(status_.begin(), n, KVBM_ERR_MISS);
      kvbm_load_options_t options;
      kvbm_load_options_init(&options, sizeof options);
      options.item_status = status_.data();
      if (hits != 0) kvbm_cache_load(cache_, match, ids_.data() + first, hits, &options, nullptr, 0);
      kvbm_match_release(match);
      for (size_t i = 0; i < n; ++i) {
        if (status_[i] != KVBM_OK) {
          refused_ += "of " + std::to_string(hits) + " found from " + std::to_string(first) + " on " +
                      std::to_string(i) + ": " + kvbm_status_text(status_[i]);
          return first + i;
        }
        for (size_t w = (first + i) * kBlock / 8; w < (first + i + 1) * kBlock / 8; ++w) {
          if (memory_[w] == word_at(w)) continue;
          ADD_FAILURE() << "block " << first + i << " is wrong";
          return first + i;
        }
      }
    }
    return keys_.size();
  }

 private:
  [[nodiscard]] uint64_t word_at(size_t i) const { return word_of(prompt_ << 32 | i / (kBlock / 8), i % (kBlock / 8)); }

  const uint64_t prompt_;
  std::vector<uint64_t> memory_;
  std::vector<uint32_t> ids_;
  std::vector<kvbm_status_t> status_;
  std::vector<kvbm_key_t> keys_;
  std::string refused_;
  kvbm_cache_t* cache_ = nullptr;
};

// The process that owns a shared tier set.
class Owner {
 public:
  Owner(const std::string& directory, uint64_t host_bytes) {
    int out[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, out[1], 1);
    const std::string host = std::to_string(host_bytes);
    const std::string block = std::to_string(kBlock);
    const char* arguments[] = {KVBM_COMMAND,      "node",   "--json", "--listen", "127.0.0.1:0", "--share",
                               directory.c_str(), "--disk", "256MiB", "--host",   host.c_str(),  "--block-bytes",
                               block.c_str(),     nullptr};
    EXPECT_EQ(posix_spawn(&pid_, KVBM_COMMAND, &files, nullptr, const_cast<char**>(arguments), environ), 0);
    posix_spawn_file_actions_destroy(&files);
    close(out[1]);
    char line[256];  // the owner's line that says it is serving
    EXPECT_GT(read(out[0], line, sizeof line), 0);
    close(out[0]);
  }
  ~Owner() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

 private:
  pid_t pid_ = -1;
};

struct Tiers {
  const char* name;
  uint32_t admission = KVBM_ADMIT_ALL;
  const char* codec = nullptr;
  bool sealed = false;
  uint32_t quota = 0;  // blocks
  bool shared = false;
  bool disk = true;
  uint64_t disk_bytes = 256ULL << 20;
  bool elsewhere = true;  // of a shared one, the owner
};

class World {
 public:
  World(const Tiers& setup, uint32_t host, const char* policy) {
    const std::string path = dir_.path() + "/tier";
    const std::string key_file = dir_.path() + "/keys";
    if (setup.shared && setup.elsewhere) owner_ = std::make_unique<Owner>(path, host_of(host));
    // Waits long for slots, because a disk that stands still for a second is no failure of this test.
    std::vector<kvbm_setting_t> settings{{"host.room_wait", "60s"}};
    if (setup.sealed) {
      std::ofstream(key_file) << "1 " << std::string(64, 'a') << "\n";
      EXPECT_EQ(chmod(key_file.c_str(), 0600), 0);
      settings.push_back({"seal.key_file", key_file.c_str()});
    }
    kvbm_context_options_t context;
    kvbm_context_options_init(&context, sizeof context);
    context.settings = settings.data();
    context.n_settings = settings.size();
    kvbm_tier_t tier{};
    tier.path = path.c_str();
    tier.capacity_bytes = setup.disk_bytes;
    tier.admission = setup.admission;
    tier.codec = setup.codec;
    kvbm_manager_options_t options;
    kvbm_manager_options_init(&options, sizeof options);
    options.block_bytes = kBlock;
    options.host_capacity_bytes = host_of(host);
    options.policy = policy;
    options.tiers = &tier;
    options.n_tiers = setup.disk ? 1 : 0;
    if (setup.shared) options.flags = KVBM_MANAGER_SHARE;
    kvbm_namespace_options_t who;
    kvbm_namespace_options_init(&who, sizeof who);
    who.model = "m";
    who.quota_bytes = setup.quota * kSlot;
    who.quota_mode = KVBM_QUOTA_EVICT;
    kvbm_error_t error{};
    EXPECT_EQ(kvbm_context_create(&context, &context_, &error), KVBM_OK) << error.message;
    EXPECT_EQ(kvbm_manager_create(context_, &options, &manager_, &error), KVBM_OK) << error.message;
    EXPECT_EQ(kvbm_namespace_open(manager_, &who, &ns_, &error), KVBM_OK) << error.message;
  }
  ~World() {
    kvbm_namespace_release(ns_);
    kvbm_manager_release(manager_);
    kvbm_context_release(context_);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] kvbm_manager_t* manager() const { return manager_; }
  [[nodiscard]] kvbm_namespace_t* ns() const { return ns_; }

 private:
  test::TempDir dir_;
  std::unique_ptr<Owner> owner_;
  kvbm_context_t* context_ = nullptr;
  kvbm_manager_t* manager_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
};

// Two engines, a prompt each, at once; then each finds and loads its own.
void keep_two_prompts(const Tiers& setup, uint32_t host, const char* policy, size_t n, size_t piece) {
  SCOPED_TRACE(std::string(setup.name) + ", " + policy + ", a host of " + std::to_string(host) + " blocks");
  const World world(setup, host, policy);
  Engine one(world.manager(), world.ns(), 1, n);
  Engine two(world.manager(), world.ns(), 2, n);
  const auto both = [&](auto&& what) {
    size_t second = 0;
    std::thread other([&] { second = what(two); });
    const size_t first = what(one);
    other.join();
    EXPECT_EQ(first, n) << one.refused();
    EXPECT_EQ(second, n) << two.refused();
  };
  both([piece](Engine& engine) { return engine.store(piece); });
  both([](Engine& engine) { return engine.find(); });
  both([n](Engine& engine) { return engine.load(n); });
  both([piece](Engine& engine) { return engine.load(piece); });
}

const Tiers kSetups[] = {
    {"disk"},
    {"write-back", KVBM_ADMIT_ON_EVICTION},
    {"coded", KVBM_ADMIT_ALL, "zstd"},
    {"sealed", KVBM_ADMIT_ALL, nullptr, true},
    {"quota", KVBM_ADMIT_ALL, nullptr, false, 3},
    {"quota, write-back", KVBM_ADMIT_ON_EVICTION, nullptr, false, 3},
    {"shared", KVBM_ADMIT_ALL, nullptr, false, 0, true},
    {"owned", KVBM_ADMIT_ALL, nullptr, false, 0, true, true, 256ULL << 20, false},
};
const char* const kPolicies[] = {"prefix", "lru", "fifo", "lfu", "tinylfu"};

class Chains : public ::testing::TestWithParam<Tiers> {};

// KVBMTEST_LONG: every policy above each kind of tier, and 4,096 blocks above each; else each policy above two of them.
bool long_form() { return std::getenv("KVBMTEST_LONG") != nullptr; }

TEST_P(Chains, longer_than_the_host_are_kept_whole_under_every_policy) {
  const uint32_t hosts[] = {2, 3, 5, 8, 16};
  const size_t setup = std::strlen(GetParam().name);  // keeps the setups' samples of policies apart
  for (size_t at = 0; at < std::size(kPolicies); ++at) {
    if (!long_form() && (at + setup) % 3 != 0) continue;
    const uint32_t host = hosts[at % std::size(hosts)];
    keep_two_prompts(GetParam(), GetParam().quota != 0 ? std::max(host, 5U) : host, kPolicies[at],
                     long_form() ? 300 : 120, 7);
  }
}

TEST_P(Chains, of_thousands_of_blocks_are_kept_whole) {
  const bool all = long_form() || std::string(GetParam().name) == "disk";
  keep_two_prompts(GetParam(), 16, "prefix", all ? 4096 : 512, 64);
}

TEST_P(Chains, are_kept_whole_where_they_are_stored_in_one_call_or_a_block_at_a_time) {
  keep_two_prompts(GetParam(), 6, "lru", 100, 100);
  keep_two_prompts(GetParam(), 6, "prefix", 100, 1);
}

INSTANTIATE_TEST_SUITE_P(Above, Chains, ::testing::ValuesIn(kSetups), [](const auto& of) {
  std::string name = of.param.name;
  std::erase_if(name, [](char c) { return c == ' ' || c == ','; });
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// The lowest tier refuses or evicts blocks that it cannot hold, starting at the end of the chain.
void keep_the_beginning(const Tiers& setup, uint32_t host, size_t n, size_t piece, size_t least) {
  SCOPED_TRACE(std::string(setup.name) + " in pieces of " + std::to_string(piece));
  const World world(setup, host, "prefix");
  Engine engine(world.manager(), world.ns(), 1, n);
  const size_t stored = engine.store(piece);
  EXPECT_LT(stored, n) << "all of it was there: this shows nothing";
  EXPECT_GE(engine.find(), least);
  // With on_eviction the loads push blocks from the host to the disk, which evicts others for them: no bound holds.
  if (setup.admission != KVBM_ADMIT_ON_EVICTION) {
    EXPECT_GE(engine.load(64), least);
  }
}

TEST(LongChains, keep_their_beginning_where_no_tier_is_below) {
  const Tiers alone{"alone", KVBM_ADMIT_ALL, nullptr, false, 0, false, false};
  keep_the_beginning(alone, 16, 64, 64, 16);
  keep_the_beginning(alone, 16, 64, 8, 16);
  keep_the_beginning(alone, 16, 64, 1, 16);
}

// A disk of three segments of 16 MiB, of which a record of a block takes 8 KiB.
TEST(LongChains, keep_their_beginning_where_they_are_longer_than_all_tiers) {
  for (const uint32_t admission : {KVBM_ADMIT_ALL, KVBM_ADMIT_ON_EVICTION}) {
    const Tiers small{"small", admission, nullptr, false, 0, false, true, 64ULL << 20};
    const size_t piece = admission == KVBM_ADMIT_ALL ? 10000 : 128;
    keep_the_beginning(small, 64, 10000, piece, 5000);
  }
}

// A new prompt evicts an old one as before.
TEST(LongChains, give_way_to_the_next_prompt) {
  const World world({"small", KVBM_ADMIT_ALL, nullptr, false, 0, false, true, 64ULL << 20}, 64, "prefix");
  for (uint64_t prompt = 1; prompt < 5; ++prompt) {
    Engine engine(world.manager(), world.ns(), prompt, 2500);
    EXPECT_EQ(engine.store(64), 2500U) << prompt;
    EXPECT_EQ(engine.find(), 2500U) << prompt;
    EXPECT_EQ(engine.load(2500), 2500U) << prompt;
  }
}

// One prompt, three times, as an engine would: looked up, loaded, and what is missing stored.
TEST(LongChains, are_all_hits_in_a_replay) {
  const test::TempDir dir;
  const auto replay = [&](size_t n, int times, const std::string& arguments) {
    const std::string trace = dir.path() + "/" + std::to_string(n) + ".jsonl";
    std::ofstream out(trace);
    for (int t = 0; t < times; ++t) {
      out << R"({"timestamp": 0, "input_length": )" << n * 512 << R"(, "output_length": 1, "hash_ids": [)";
      for (size_t i = 0; i < n; ++i) out << (i == 0 ? "" : ", ") << i;
      out << "]}\n";
    }
    out.close();
    const test::Ran ran = test::run("replay " + trace + " " + arguments + " --block-bytes 4KiB --verify --json", "");
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    return ran.text;
  };
  const std::string small = replay(64, 2, "--host 100KiB --disk 64MiB");
  EXPECT_TRUE(test::contains(small, "\"hits\": 64,")) << small;
  const std::string large = replay(4096, 3, "--host 4MiB --disk 256MiB");
  EXPECT_TRUE(test::contains(large, "\"hits\": 8192,")) << large;
  EXPECT_TRUE(test::contains(large, "\"wrong_blocks\": 0,")) << large;
}

// A file that is larger than the hosts it comes through.
TEST(LongChains, are_put_and_got_by_hand) {
  const test::TempDir dir;
  const std::string file = dir.path() + "/file";
  std::string bytes;
  for (uint64_t i = 0; bytes.size() < (3U << 20); ++i) bytes += std::to_string(i * 0x9E3779B97F4A7C15ULL);
  std::ofstream(file) << bytes;
  const std::string where = " --share " + dir.path() + "/tier --disk 64MiB --host 256KiB --block-bytes 4KiB ";
  const test::Ran put = test::run("put" + where + "notes " + file);
  EXPECT_EQ(put.exit_code, 0) << put.text;
  const test::Ran got = test::run("get" + where + "-o " + dir.path() + "/back notes");
  EXPECT_EQ(got.exit_code, 0) << got.text;
  std::ifstream back(dir.path() + "/back", std::ios::binary);
  const std::string came((std::istreambuf_iterator<char>(back)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(came == bytes) << came.size() << " bytes";
}

}  // namespace
}  // namespace kvbm::chain_test
