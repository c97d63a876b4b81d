// kvbm config, inspect and stats as a user runs them, on a tier directory that the C interface wrote.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "kvbm.h"
#include "support/run_command.h"
#include "support/temp_dir.h"

namespace {

constexpr size_t kRecords = 40;

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;

// A directory with kRecords records of 64 KiB, every payload byte 0xA5.
void write_tier(const std::string& dir) {
  kvbm_context_t* context = nullptr;
  kvbm_manager_t* manager = nullptr;
  kvbm_namespace_t* ns = nullptr;
  ASSERT_EQ(kvbm_context_create(nullptr, &context, nullptr), KVBM_OK);
  kvbm_manager_options_t options;
  kvbm_manager_options_init(&options, sizeof options);
  kvbm_tier_t tier{};
  tier.path = dir.c_str();
  tier.capacity_bytes = 64 << 20;
  tier.admission = KVBM_ADMIT_ON_REQUEST;  // else a record may be written twice, and the damaged copy be the dead one
  options.block_bytes = 64 << 10;
  options.host_capacity_bytes = 8 << 20;
  options.tiers = &tier;
  options.n_tiers = 1;
  kvbm_error_t error{};
  ASSERT_EQ(kvbm_manager_create(context, &options, &manager, &error), KVBM_OK) << error.message;
  kvbm_namespace_options_t named;
  kvbm_namespace_options_init(&named, sizeof named);
  named.model = "tests";
  ASSERT_EQ(kvbm_namespace_open(manager, &named, &ns, nullptr), KVBM_OK);
  kvbm_block_t blocks[kRecords];
  kvbm_view_t views[kRecords];
  kvbm_key_t keys[kRecords] = {};
  ASSERT_EQ(kvbm_manager_allocate(manager, ns, kRecords, blocks, nullptr, 0, nullptr), KVBM_OK);
  ASSERT_EQ(kvbm_block_view(manager, blocks, kRecords, views), KVBM_OK);
  for (size_t i = 0; i < kRecords; ++i) {
    keys[i].bytes[0] = static_cast<uint8_t>(i + 1);
    std::memset(views[i].data, 0xA5, views[i].bytes);
  }
  ASSERT_EQ(kvbm_manager_complete(manager, blocks, kRecords, nullptr), KVBM_OK);
  ASSERT_EQ(kvbm_manager_register(manager, ns, blocks, keys, kRecords, nullptr), KVBM_OK);
  ASSERT_EQ(kvbm_manager_offload(manager, ns, nullptr, keys, kRecords, 1, nullptr, 0), KVBM_OK);
  ASSERT_EQ(kvbm_block_release(manager, blocks, kRecords), KVBM_OK);
  kvbm_namespace_release(ns);
  kvbm_manager_release(manager);
  kvbm_context_release(context);
}

// Changes one payload byte of the directory.
bool damage_one_byte(const std::string& dir) {
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.file_size() < (1 << 20)) continue;
    const int fd = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    unsigned char byte = 0;
    bool done = false;
    for (off_t at = 100000; !done && ::pread(fd, &byte, 1, at) == 1; at += 4096) {
      if (byte != 0xA5) continue;
      byte = 0x5A;
      done = ::pwrite(fd, &byte, 1, at) == 1;
    }
    ::close(fd);
    if (done) return true;
  }
  return false;
}

TEST(TierCommand, inspect_and_stats_count_the_records_and_find_damage) {
  kvbm::test::TempDir temp;
  const std::string dir = temp.path() + "/tier";
  write_tier(dir);
  if (HasFatalFailure()) return;
  const Ran good = run("inspect '" + dir + "' --verify --json");
  EXPECT_EQ(good.exit_code, 0) << good.text;
  EXPECT_TRUE(contains(good.text, "\"records\": 40,")) << good.text;
  EXPECT_TRUE(contains(good.text, "\"damaged\": 0,")) << good.text;
  EXPECT_TRUE(contains(good.text, "\"heat\": {")) << good.text;
  EXPECT_TRUE(contains(run("inspect '" + dir + "'").text, "40 records, 2.62 MB (2.50 MiB)"));
  const Ran stats = run("stats '" + dir + "' --json");
  EXPECT_EQ(stats.exit_code, 0);
  EXPECT_TRUE(contains(stats.text, "\"payload_bytes\": 2621440,")) << stats.text;
  ASSERT_TRUE(damage_one_byte(dir));
  const Ran bad = run("inspect '" + dir + "' --verify --json");
  EXPECT_EQ(bad.exit_code, 1) << bad.text;
  EXPECT_TRUE(contains(bad.text, "\"damaged\": 1,")) << bad.text;
}

TEST(TierCommand, a_directory_that_is_no_tier_is_refused_with_what_to_do) {
  kvbm::test::TempDir temp;
  for (const std::string& dir : {temp.path(), std::string("/nonexistent")}) {
    for (const char* command : {"inspect ", "stats "}) {
      const Ran ran = run(command + dir);
      EXPECT_EQ(ran.exit_code, 2) << ran.text;
      EXPECT_TRUE(contains(ran.text, dir)) << ran.text;
      EXPECT_TRUE(contains(ran.text, "hint: give the directory of a disk tier")) << ran.text;
    }
  }
  EXPECT_EQ(run("inspect").exit_code, 2);
}

TEST(TierCommand, config_tells_each_value_with_its_origin) {
  kvbm::test::TempDir temp;
  const std::string file = temp.path() + "/kvbm.toml";
  FILE* out = std::fopen(file.c_str(), "we");
  ASSERT_NE(out, nullptr);
  std::fputs("threads = 3\n[host]\npolicy = \"lru\"\n[[tier]]\npath = \"/x\"\n", out);
  std::fclose(out);
  const Ran ran = run("config --file '" + file + "' --set host.capacity=1GiB");
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_TRUE(contains(ran.text, "threads = 3  # file " + file + ":1")) << ran.text;
  EXPECT_TRUE(contains(ran.text, "host.capacity = \"1GiB\"  # options")) << ran.text;
  EXPECT_TRUE(contains(ran.text, "host.block_bytes = \"64KiB\"  # default")) << ran.text;
  const Ran json = run("config --file '" + file + "' --json");
  EXPECT_TRUE(contains(json.text, "\"key\": \"tier[0].path\",\n    \"value\": \"/x\"")) << json.text;
  EXPECT_TRUE(contains(run("config --reference").text, "| `host.capacity` |"));
}

TEST(TierCommand, a_config_that_is_wrong_exits_2_and_names_the_key_and_its_origin) {
  const Ran unknown = run("config --set host.capacty=1GiB");
  EXPECT_EQ(unknown.exit_code, 2) << unknown.text;
  EXPECT_TRUE(contains(unknown.text, "did you mean host.capacity?")) << unknown.text;
  for (const char* arguments : {"config --set host.capacity", "config --set =1", "config --set host.capacity=lots",
                                "config --set threads=0", "config --file /nonexistent.toml"}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments << "\n" << ran.text;
    EXPECT_TRUE(contains(ran.text, "hint: ")) << ran.text;
  }
}

}  // namespace
