// kvbm config, inspect and stats as a user runs them, on a tier directory that the C interface wrote.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "kvbm.h"
#include "support/run_command.h"
#include "support/temp_dir.h"
#include "support/with_zstd.h"

namespace tier_command_test {
namespace {

constexpr size_t kRecords = 40;

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;

// A directory with kRecords records of 64 KiB, every payload byte 0xA5.
void write_tier(const std::string& dir, const char* codec = "off") {
  kvbm_context_t* context = nullptr;
  kvbm_manager_t* manager = nullptr;
  kvbm_namespace_t* ns = nullptr;
  ASSERT_EQ(kvbm_context_create(nullptr, &context, nullptr), KVBM_OK);
  kvbm_manager_options_t options;
  kvbm_manager_options_init(&options, sizeof options);
  kvbm_tier_t tier{};
  tier.path = dir.c_str();
  tier.capacity_bytes = 64 << 20;
  tier.codec = codec;
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
  EXPECT_TRUE(contains(stats.text, "\"capacity_bytes\": 67108864,")) << stats.text;
  EXPECT_TRUE(contains(run("stats '" + dir + "'").text, "capacity: 67.11 MB (64.00 MiB), as its owner was given it"));
  ASSERT_TRUE(damage_one_byte(dir));
  const Ran bad = run("inspect '" + dir + "' --verify --json");
  EXPECT_EQ(bad.exit_code, 1) << bad.text;
  EXPECT_TRUE(contains(bad.text, "\"damaged\": 1,")) << bad.text;
}

TEST(TierCommand, a_foreign_file_of_any_name_is_listed) {
  kvbm::test::TempDir temp;
  const std::string dir = temp.path() + "/tier";
  write_tier(dir);
  if (HasFatalFailure()) return;
  std::ofstream(dir + "/a\xff\xfe") << "mine";
  const Ran ran = run("inspect '" + dir + "' --json", "");
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_TRUE(nlohmann::json::accept(ran.text)) << ran.text;
  EXPECT_TRUE(contains(ran.text, "a\xEF\xBF\xBD")) << ran.text;
}

TEST(TierCommand, inspect_accounts_for_every_segment) {
  kvbm::test::TempDir temp;
  const std::string dir = temp.path() + "/tier";
  write_tier(dir);
  if (HasFatalFailure()) return;
  const std::string json = run("inspect '" + dir + "' --json").text;
  const auto number = [&json](const std::string& name) {
    const size_t at = json.find("\"" + name + "\": ");
    return at == std::string::npos ? -1 : std::atoi(json.c_str() + at + name.size() + 4);
  };
  const int free = number("free_segments");
  ASSERT_GT(free, 0) << json;
  const std::string text = run("inspect '" + dir + "'").text;
  const auto count = [](const std::string& in, const std::string& what) {
    int n = 0;
    for (size_t at = in.find(what); at != std::string::npos; at = in.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count(json, "\"state\": "), count(text, "  closed ") + count(text, "  open ") + free) << text << json;
  EXPECT_TRUE(contains(text, std::to_string(free) + " of them free")) << text;
  EXPECT_TRUE(contains(text, "\nand " + std::to_string(free) + " free segment")) << text;
}

TEST(TierCommand, a_host_that_holds_no_block_is_no_configuration) {
  const Ran small = run("config --set host.capacity=64MiB --set host.block_bytes=128MiB");
  EXPECT_EQ(small.exit_code, 2) << small.text;
  EXPECT_TRUE(
      contains(small.text, "host.capacity = \"64MiB\" is smaller than one block: host.block_bytes = \"128MiB\""))
      << small.text;
  EXPECT_EQ(run("config --set host.capacity=64MiB --set host.block_bytes=64MiB").exit_code, 2);
  EXPECT_EQ(run("config --set host.capacity=65MiB --set host.block_bytes=64MiB").exit_code, 0);
}

TEST(TierCommand, what_sharing_a_directory_leaves_in_it_is_not_foreign) {
  kvbm::test::TempDir temp;
  const std::string dir = temp.path() + "/tier";
  write_tier(dir);
  if (HasFatalFailure()) return;
  for (const char* name : {"/share.sock", "/share.sock.lock", "/notes.txt"}) std::ofstream(dir + name) << "x";
  const Ran ran = run("inspect '" + dir + "'");
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_TRUE(contains(ran.text, "foreign file: notes.txt")) << ran.text;
  EXPECT_FALSE(contains(ran.text, "share.sock")) << ran.text;
}

TEST(TierCommand, inspect_and_stats_say_how_records_are_coded_and_sealed) {
  if (!kvbm::test::with_zstd()) GTEST_SKIP() << "TierCommand: " << kvbm::test::kWithoutZstd;
  kvbm::test::TempDir temp;
  const std::string plain = temp.path() + "/plain";
  const std::string coded = temp.path() + "/coded";
  const std::string keys = temp.path() + "/keys";
  write_tier(plain);
  FILE* out = std::fopen(keys.c_str(), "we");
  ASSERT_NE(out, nullptr);
  std::fprintf(out, "7 %064d\n", 5);
  std::fclose(out);
  ASSERT_EQ(::chmod(keys.c_str(), 0600), 0);
  ::setenv("KVBM_SEAL_KEY_FILE", keys.c_str(), 1);
  write_tier(coded, "zstd");
  ::unsetenv("KVBM_SEAL_KEY_FILE");
  if (HasFatalFailure()) return;
  EXPECT_TRUE(contains(run("stats '" + plain + "'").text, "coding: none\n"));
  EXPECT_TRUE(contains(run("inspect '" + coded + "'").text, "coding: 40 of 40 records, "));
  EXPECT_TRUE(contains(run("inspect '" + coded + "'").text, "; 40 sealed (key 7)\n"));
  const auto all = nlohmann::json::parse(run("inspect --json '" + coded + "'", "").text, nullptr, false);
  ASSERT_TRUE(all.is_object());
  const auto& coding = all["coding"];
  EXPECT_EQ(coding["heads_read"], 40);
  EXPECT_EQ(coding["coded"], 40);
  EXPECT_EQ(coding["left_plain"], 0);
  EXPECT_EQ(coding["lossy"], 0);
  EXPECT_EQ(coding["sealed_records"], 40);
  EXPECT_EQ(coding["keys"][0]["id"], 7);
  EXPECT_EQ(coding["keys"][0]["records"], 40);
  EXPECT_GT(coding["ratio"], 10.0);
  EXPECT_EQ(coding["saved_bytes"].get<int64_t>(), 40 * 65536 - all["payload_bytes"].get<int64_t>());
  // `kvbm stats` reads only a part of each segment.
  const auto some = nlohmann::json::parse(run("stats --json '" + coded + "'", "").text, nullptr, false);
  ASSERT_TRUE(some.is_object());
  EXPECT_EQ(some["records"], 40);
  EXPECT_LE(some["coding"]["heads_read"], 16 * some["segments"].get<int>());
  EXPECT_GE(some["coding"]["heads_read"], 16);
  EXPECT_EQ(some["coding"]["coded"], some["coding"]["heads_read"]);
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
  EXPECT_EQ(run("stats").exit_code, 2);
  EXPECT_EQ(run("stats '" + temp.path() + "' --node 127.0.0.1:1").exit_code, 2);
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
}  // namespace tier_command_test
