// kvbm replay, trace and demo as a user runs them: figures, and the messages for bad input.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "kvbm.h"
#include "support/run_command.h"
#include "support/small_file_system.h"
#include "support/temp_dir.h"

namespace replay_command_test {
namespace {

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;

// The first number of this name in JSON; -1 when there is none.
double number(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\": ");
  return at == std::string::npos ? -1 : std::strtod(json.c_str() + at + name.size() + 4, nullptr);
}

class ReplayCommand : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run("trace generate --requests 300 --seed 3 -o " + trace()).exit_code, 0); }
  [[nodiscard]] std::string trace() const { return dir_.path() + "/trace.jsonl"; }
  void refused(const std::string& arguments, const std::string& message, const std::string& environment = "") {
    const Ran ran = run("replay " + arguments, " 2>&1", environment);
    EXPECT_EQ(ran.exit_code, 2) << arguments << "\n" << ran.text;
    EXPECT_TRUE(contains(ran.text, message)) << arguments << "\n" << ran.text;
  }
  kvbm::test::TempDir dir_;
};

TEST_F(ReplayCommand, a_bad_line_is_named_and_can_be_skipped) {
  std::ofstream(trace(), std::ios::app) << "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n";
  refused(trace() + " --capacity-blocks 10", "line 301: hash_ids is missing");
  const Ran skipped = run("replay --skip-bad --capacity-blocks 10 " + trace());
  EXPECT_EQ(skipped.exit_code, 0) << skipped.text;
  EXPECT_TRUE(contains(skipped.text, "1 bad lines skipped")) << skipped.text;
}

// A small host that offloads hold all the time: what is found below comes back all the same.
TEST_F(ReplayCommand, a_small_host_costs_no_block_that_was_found) {
  const std::string small = "replay " + trace() + " --host 16MiB --disk 256MiB --block-bytes 64KiB --verify";
  const Ran ran = run(small + " --json", "", "TMPDIR=" + dir_.path());
  ASSERT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_EQ(number(ran.text, "failed_blocks"), 0) << ran.text;
  EXPECT_EQ(number(ran.text, "wrong_blocks"), 0) << ran.text;
  EXPECT_GT(number(ran.text, "verified_blocks"), 500) << ran.text;
}

TEST_F(ReplayCommand, asked_to_end_it_says_what_it_did_and_leaves_no_files) {
  ASSERT_EQ(run("trace generate --requests 6000 --seed 3 -o " + trace()).exit_code, 0);
  const std::string scratch = dir_.path() + "/scratch";
  const std::string reports = dir_.path() + "/reports";
  std::filesystem::create_directory(scratch);
  const Ran ran =
      run("replay " + trace() + " --host 16MiB --disk 64MiB --json --report-every 10 2> " + reports +
              " & child=$!; until [ -s " + reports + " ]; do sleep 0.01; done; kill -TERM $child; wait $child",
          "", "TMPDIR=" + scratch);
  EXPECT_EQ(ran.exit_code, 130) << ran.text;
  EXPECT_GT(number(ran.text, "requests"), 0) << ran.text;
  EXPECT_LT(number(ran.text, "requests"), 6000) << ran.text;
  EXPECT_TRUE(std::filesystem::is_empty(scratch));
}

// If descriptor 1 were closed, the next file of the replay would get it, and the table would be printed into that file.
TEST_F(ReplayCommand, closed_output_is_a_failure_and_no_file_of_the_tiers) {
  const std::string tier = dir_.path() + "/tier";
  const std::string replay = "replay " + trace() + " --host 8MiB --disk 64MiB --limit 20 --settle --disk-path " + tier;
  EXPECT_EQ(run(replay, " >&- 2>&-").exit_code, 1);
  EXPECT_EQ(run(replay, " <&- 2>&1").exit_code, 0);
  EXPECT_EQ(run("inspect --verify " + tier).exit_code, 0);
}

TEST_F(ReplayCommand, a_directory_for_temporary_files_that_is_none_is_named) {
  const std::string none = "TMPDIR=" + dir_.path() + "/none";
  EXPECT_EQ(run("--version", " 2>&1", none).exit_code, 0);
  const Ran ran = run("replay " + trace() + " --host 8MiB --disk 64MiB --limit 5", " 2>&1", none);
  EXPECT_EQ(ran.exit_code, 1) << ran.text;
  EXPECT_TRUE(contains(ran.text, dir_.path() + "/none/kvbm-replay")) << ran.text;
  EXPECT_TRUE(contains(ran.text, "hint: give a directory with --disk-path")) << ran.text;
}

TEST_F(ReplayCommand, counts_below_zero_are_no_large_ones) {
  refused(trace() + " --host 8MiB --limit -1", "--limit: -1 is below zero");
  refused(trace() + " --host 8MiB --first -1", "--first: -1 is below zero");
  EXPECT_EQ(run("trace generate --requests 10 --seed -1").exit_code, 2);
}

TEST_F(ReplayCommand, a_compressed_trace_that_is_not_read_is_named_as_one) {
  std::ofstream(trace(), std::ios::binary | std::ios::trunc) << "BZh91AY and so on";
  refused(trace() + " --capacity-blocks 10", "compressed in a way that is not read here; unpack it first");
  EXPECT_FALSE(contains(run("replay " + trace() + " --capacity-blocks 10").text, "skip-bad"));
}

TEST_F(ReplayCommand, a_trace_out_of_order_covers_the_time_between_its_ends) {
  std::ofstream(trace(), std::ios::trunc)
      << R"({"timestamp": 5000, "input_length": 512, "output_length": 1, "hash_ids": [1]})"
         "\n"
      << R"({"timestamp": 1000, "input_length": 512, "output_length": 1, "hash_ids": [1]})"
         "\n"
      << R"({"timestamp": 2000, "input_length": 512, "output_length": 1, "hash_ids": [1]})"
         "\n";
  const Ran ran = run("trace stat --json " + trace());
  EXPECT_EQ(number(ran.text, "seconds"), 4) << ran.text;
}

// 521 tokens in 33 blocks are blocks of 16: a capacity in tokens and the tokens saved are counted so.
TEST_F(ReplayCommand, blocks_have_the_size_that_the_trace_says) {
  std::string ids = "0";
  for (int i = 1; i < 32; ++i) ids += ", " + std::to_string(i);
  std::ofstream(trace(), std::ios::trunc)
      << R"({"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 521, "output_length": 132, "hash_ids": [)"
      << ids << ", 32]}\n"
      << R"({"chat_id": 2, "parent_chat_id": 1, "timestamp": 62.5, "input_length": 545, "output_length": 10, "hash_ids": [)"
      << ids << ", 100, 101, 102]}\n";
  const Ran policies = run("replay --json --capacity-tokens 4096 " + trace());
  EXPECT_EQ(number(policies.text, "capacity_blocks"), 256) << policies.text;
  EXPECT_EQ(number(policies.text, "hits"), 32) << policies.text;
  const Ran tiers = run("replay --json --host 8MiB --block-bytes 4KiB " + trace());
  EXPECT_EQ(number(tiers.text, "tokens_saved"), 512) << tiers.text;
  EXPECT_EQ(number(run("trace stat --json " + trace()).text, "seconds"), 1.386);

  const std::string written = dir_.path() + "/written.jsonl";
  const Ran converted = run("trace convert --json " + trace() + " -o " + written);
  EXPECT_EQ(number(converted.text, "block_tokens"), 16) << converted.text;
  EXPECT_EQ(number(run("replay --json --capacity-tokens 4096 " + written).text, "hits"), 32);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(ReplayCommand, an_array_of_requests_is_a_trace_packed_or_not) {
  std::string text = "[\n" + text_of(trace());
  for (size_t at = 0; (at = text.find("}\n{", at)) != std::string::npos;) text.replace(at, 3, "}, {");
  const std::string array = dir_.path() + "/array.json";
  std::ofstream(array) << text << "]\n";
  const std::string written = dir_.path() + "/written.jsonl";
  // Formats that this build reads and the machine has a program for.
  for (const char* pack : {"cat < %s > %s", "gzip -c < %s > %s", "zstd -q -c < %s > %s"}) {
    const std::string file = dir_.path() + "/packed";
    char command[4096];
    std::snprintf(command, sizeof command, pack, array.c_str(), file.c_str());
    if (std::system(command) != 0) continue;  // NOLINT: the programs of the machine
    const Ran converted = run("trace convert " + file + " -o " + written, " 2>&1");
    if (contains(converted.text, "this build reads no")) continue;
    ASSERT_EQ(converted.exit_code, 0) << converted.text;
    EXPECT_TRUE(text_of(written) == text_of(trace())) << pack;
    const double hits = number(run("replay --json --capacity-blocks 100 " + file).text, "hits");
    EXPECT_GT(hits, 0) << pack;
    EXPECT_EQ(hits, number(run("replay --json --capacity-blocks 100 " + trace()).text, "hits")) << pack;
  }
  std::ofstream(array) << text;
  refused(array + " --capacity-blocks 10", "request 301: the array has no end");
  const Ran skipped = run("replay --skip-bad --capacity-blocks 10 " + array);
  EXPECT_EQ(skipped.exit_code, 0) << skipped.text;
  EXPECT_TRUE(contains(skipped.text, "1 bad requests skipped")) << skipped.text;
}

TEST_F(ReplayCommand, a_trace_with_lengths_alone_says_what_is_in_it_and_no_more) {
  std::ofstream(trace(), std::ios::trunc)
      << "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      << "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n";
  refused(trace() + " --capacity-blocks 10", "not which of them begin alike");
  const Ran convert = run("trace convert " + trace());
  EXPECT_EQ(convert.exit_code, 2) << convert.text;
  EXPECT_TRUE(contains(convert.text, "not which of them begin alike")) << convert.text;
  const Ran stat = run("trace stat --json " + trace());
  EXPECT_EQ(stat.exit_code, 0) << stat.text;
  EXPECT_EQ(number(stat.text, "input_tokens"), 770) << stat.text;
  EXPECT_TRUE(contains(stat.text, "no record of which prompts begin alike")) << stat.text;
  EXPECT_FALSE(contains(stat.text, "hit_rate")) << stat.text;
}

TEST_F(ReplayCommand, a_full_file_system_is_told) {
  const kvbm::test::SmallFileSystem small(60 << 20);
  if (!small.ok()) GTEST_SKIP() << small.why();
  const std::string replay = "replay " + trace() + " --host 8MiB --disk 256MiB --disk-path " + small.path() + "/tier";
  const Ran told = run(replay);
  EXPECT_EQ(told.exit_code, 0) << told.text;
  EXPECT_TRUE(contains(told.text, "kvbm: warning: ")) << told.text;
  EXPECT_TRUE(contains(told.text, "lower the tier's capacity")) << told.text;
  const auto json = nlohmann::json::parse(run(replay + " --json", "").text, nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_FALSE(json.at("warnings").empty());
}

TEST_F(ReplayCommand, bad_input_is_refused_with_a_reason) {
  refused(dir_.path() + "/none --capacity-blocks 10", "cannot open the trace");
  refused(trace() + " --capacity-blocks 10 --policy nope", "unknown eviction policy");
  refused(trace() + " --host 8MiB --policy nope", "no eviction policy has this name");
  refused(trace(), "policies or bytes");
  refused(trace() + " --capacity-blocks 10 --host 8MiB", "two things to replay");
  refused(trace() + " --capacity-blocks 0", "a capacity of 0 is less than one block");
  refused(trace() + " --capacity-tokens 3k,511", "hint: a block of this trace is 512 tokens");
  refused(trace() + " --capacity-blocks 10 --report-every 5", "--report-every: for bytes through tiers alone");
  refused(trace() + " --capacity-blocks 10 --format csv", "one of auto, mooncake, bailian, azure, burstgpt");
  refused(trace() + " --capacity-blocks 10 --block-tokens -1", "--block-tokens");
  refused(trace() + " --capacity-blocks 10 --block-tokens 16", "do not fit blocks of 16 tokens");
  refused(trace() + " --capacity-blocks 1.5", "--capacity-blocks: not a whole number: `1.5`");
  refused(trace() + " --capacity-blocks 1k,,2k", "--capacity-blocks: not a number");
  refused(trace() + " --host 8MiB --policy nope", "hint: policies: prefix lru ");
  refused(trace() + " --host 8MiB --first 300", "it has 300 requests");
  refused(trace() + " --host 4KiB", "smaller than one block");
  refused(trace() + " --host 8MiB", "KVBM_NONSENSE", "KVBM_NONSENSE=1");
}

TEST_F(ReplayCommand, a_size_that_cannot_be_names_its_option) {
  refused(trace() + " --host 16MiB --block-bytes 0", "--block-bytes 0: a block has 1 byte to 2 GiB");
  refused(trace() + " --host 16MiB --block-bytes 3GiB", "--block-bytes 3GiB: a block has");
  refused(trace() + " --host 64KiB", "--host 64KiB is smaller than one block");
  refused(trace() + " --host 0", "--host 0 is smaller than one block");
  refused(trace() + " --disk 1KiB", "--disk 1KiB: a disk tier has at least 49MiB");
  refused(trace() + " --disk 17TiB", "--disk 17TiB: a disk tier has at most 16TiB");
  EXPECT_EQ(run("replay " + trace() + " --disk 49MiB --limit 5").exit_code, 0);
}

// Options are checked before the trace, because they are quicker to correct.
TEST_F(ReplayCommand, options_are_looked_at_before_the_trace) {
  const std::string bad = dir_.path() + "/bad.jsonl";
  std::ofstream(bad) << "this is no request\n";
  refused(bad + " --capacity-blocks 1x", "--capacity-blocks: ");
  refused(bad + " --capacity-blocks 10 --policy nope", "unknown eviction policy");
  refused(bad + " --host 16MiB --block-bytes 0", "--block-bytes 0");
  refused(bad + " --capacity-blocks 10", "line 1");
  const Ran top = run("top " + bad + " --host 16MiB --threads 0");
  EXPECT_EQ(top.exit_code, 2);
  EXPECT_TRUE(contains(top.text, "--threads is 1 to 64")) << top.text;
}

TEST_F(ReplayCommand, help_says_what_tiers_without_a_name_take) {
  EXPECT_TRUE(contains(run("replay --help").text, "tiers without one use `all`")) << run("replay --help").text;
  EXPECT_EQ(run("replay " + trace() + " --host 8MiB --disk 64MiB,64MiB --admission all --limit 5").exit_code, 0);
}

TEST_F(ReplayCommand, what_tiers_are_given_is_read_with_care) {
  refused(trace() + " --disk 64MiB,much", "--disk");
  refused(trace() + " --disk 64MiB,128MiB --admission all,sometimes", "sometimes is none of all, on_eviction");
}

// An option without effect on this kind of replay is refused before the trace is read, and the message names it.
TEST_F(ReplayCommand, an_option_that_would_do_nothing_is_refused) {
  for (const char* option : {"--limit 10", "--first 10", "--verify", "--codec zstd", "--threads 2", "--settle",
                             "--block-bytes 4KiB", "--admission all", "--disk-path d", "--plugin p", "--peer h:1"}) {
    const std::string name = std::string(option).substr(0, std::string(option).find(' '));
    refused(trace() + " --capacity-blocks 1k " + option, name + ": for bytes through tiers alone");
  }
  refused(trace() + " --capacity-tokens 3M --limit 10 --verify", "--limit, --verify: for bytes through tiers alone");
  refused(trace() + " --capacity-tokens 3M --capacity-blocks 1k", "leave out one of them");
  const std::string path = dir_.path() + "/tier";
  refused(trace() + " --host 16MiB --disk-path " + path, "as --disk 1GiB, or leave out --disk-path");
  EXPECT_FALSE(std::filesystem::exists(path));
  refused(trace() + " --host 64MiB --codec foo", "as --disk 1GiB, or leave out --codec");
  refused(trace() + " --disk 64MiB --codec foo", "off, auto, fast");
  refused(trace() + " --host 64MiB --admission all", "1 name for 0 tiers below the host");
  refused(trace() + " --disk 64MiB,64MiB --admission all,all,all", "3 names for 2 tiers below the host");
  refused(trace() + " --host 8MiB --policy optimal", "takes `optimal` with --capacity-blocks");
}

TEST_F(ReplayCommand, stores_wait_for_a_slow_disk_and_nothing_is_skipped) {
  // A disk that takes 8 MiB a second, below a host of 32 blocks.
  const std::string config = dir_.path() + "/config.toml";
  std::ofstream(config) << "[[tier]]\npath = \"" << dir_.path() << "/tier\"\ncapacity = \"64MiB\"\n"
                        << "write_bytes_per_s = \"8MiB\"\n";
  const std::string arguments = "replay " + trace() + " --host 2MiB --limit 20 ";
  const Ran fast = run(arguments + "--json", "", "KVBM_CONFIG=" + config);
  ASSERT_EQ(fast.exit_code, 0);
  EXPECT_EQ(number(fast.text, "offloads_skipped"), 0) << fast.text;
  EXPECT_EQ(number(fast.text, "failed_blocks"), 0) << fast.text;
  // No block is written to a lower tier, so the report must not mention a queue.
  const Ran alone = run(arguments);
  EXPECT_FALSE(contains(alone.text, "queue")) << alone.text;
  const Ran settled = run("replay " + trace() + " --host 512MiB --disk 1GiB --limit 50 --settle --json", "");
  EXPECT_EQ(number(settled.text, "offloads_skipped"), 0) << settled.text;
}

TEST_F(ReplayCommand, a_hint_is_about_what_was_wrong) {
  for (const char* command : {"replay --capacity-blocks 10 ", "trace stat "}) {
    const std::string none = dir_.path() + "/none";
    const Ran missing = run(command + none);
    EXPECT_EQ(missing.exit_code, 2) << missing.text;
    EXPECT_EQ(missing.text, "kvbm: error: cannot open the trace: " + none + ": No such file or directory\n");
  }
  const Ran zero = run("replay --capacity-blocks 1k,0 --policy all " + trace());
  EXPECT_FALSE(contains(zero.text, "hint")) << zero.text;
  refused(trace() + " --capacity-blocks 10 --policy nope", "hint: policies: prefix ");
}

TEST_F(ReplayCommand, a_foreign_file_in_the_disk_directory_is_left_alone) {
  const std::string tier = dir_.path() + "/tier";
  std::filesystem::create_directory(tier);
  std::ofstream(tier + "/notes.txt") << "mine";
  refused(trace() + " --host 8MiB --disk 64MiB --limit 5 --disk-path " + tier, "notes.txt");
  EXPECT_EQ(std::filesystem::file_size(tier + "/notes.txt"), 4U);
}

TEST_F(ReplayCommand, a_directory_in_use_is_refused) {
  const std::string path = dir_.path() + "/tier";
  kvbm_context_t* context = nullptr;
  kvbm_manager_t* manager = nullptr;
  ASSERT_EQ(kvbm_context_create(nullptr, &context, nullptr), KVBM_OK);
  kvbm_tier_t tier{};
  tier.path = path.c_str();
  tier.capacity_bytes = 64 << 20;
  kvbm_manager_options_t options;
  kvbm_manager_options_init(&options, sizeof options);
  options.block_bytes = 64 << 10;
  options.host_capacity_bytes = 8 << 20;
  options.tiers = &tier;
  options.n_tiers = 1;
  ASSERT_EQ(kvbm_manager_create(context, &options, &manager, nullptr), KVBM_OK);
  const Ran ran = run("replay " + trace() + " --host 8MiB --disk 64MiB --limit 5 --disk-path " + path);
  EXPECT_TRUE(ran.exit_code == 1 || ran.exit_code == 2) << ran.text;
  EXPECT_TRUE(contains(ran.text, "the tiers could not be opened")) << ran.text;
  kvbm_manager_release(manager);
  kvbm_context_release(context);
}

TEST_F(ReplayCommand, a_second_run_finds_the_blocks_of_the_first) {
  const std::string arguments = "replay " + trace() +
                                " --host 8MiB --disk 256MiB --verify --json --limit 50 --disk-path " + dir_.path() +
                                "/tier";
  const Ran first = run(arguments, "");
  const Ran second = run(arguments, "");
  ASSERT_EQ(first.exit_code, 0);
  ASSERT_EQ(second.exit_code, 0);
  EXPECT_EQ(number(first.text, "found_again"), 0) << first.text;
  EXPECT_GT(number(second.text, "found_again"), 0) << second.text;
  EXPECT_EQ(number(second.text, "wrong_blocks"), 0) << second.text;
  const Ran third =
      run("replay " + trace() + " --host 64MiB --disk 256MiB --verify --limit 50 --disk-path " + dir_.path() + "/tier");
  EXPECT_TRUE(contains(third.text, "were stored by an earlier run")) << third.text;
  EXPECT_TRUE(contains(third.text, "evicted")) << third.text;
  EXPECT_FALSE(contains(third.text, "operations failed")) << third.text;
  EXPECT_FALSE(contains(third.text, "could not be loaded")) << third.text;
}

// The host's stores count every block that came in, stored by an engine or read from the disk.
TEST_F(ReplayCommand, stores_and_their_bytes_count_the_same_blocks) {
  const Ran ran = run("replay " + trace() + " --host 8MiB --disk 256MiB --json", "");
  ASSERT_EQ(ran.exit_code, 0);
  EXPECT_EQ(number(ran.text, "store_bytes"), number(ran.text, "stores") * 65536) << ran.text;
  EXPECT_GT(number(ran.text, "stores"), number(ran.text, "stored_blocks")) << ran.text;
}

// A small disk over a large one hits as often as one disk of both sizes, and the second serves blocks that the first
// evicted.
TEST_F(ReplayCommand, two_disks_hit_what_their_sizes_together_hit) {
  ASSERT_EQ(run("trace generate --workload retrieval --requests 800 --seed 5 -o " + trace()).exit_code, 0);
  const auto replay = [this](const std::string& disks) {
    const std::string sizes = " --host 8MiB --block-bytes 16KiB --disk " + disks;
    const Ran ran = run("replay " + trace() + " --settle --verify --json" + sizes, "");
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    auto report = nlohmann::json::parse(ran.text, nullptr, false);
    EXPECT_TRUE(report.is_object()) << ran.text;
    if (!report.is_object()) return nlohmann::json();
    EXPECT_EQ(report["wrong_blocks"], 0) << ran.text;
    EXPECT_EQ(report["verified_blocks"], report["hits"]) << ran.text;
    return report;
  };
  const auto small = replay("64MiB");
  const auto both = replay("64MiB,192MiB --admission all,on_eviction --disk-path " + dir_.path() + "/tier");
  const auto large = replay("256MiB");
  if (HasFailure()) return;
  ASSERT_EQ(both["tiers"].size(), 3U);
  const auto& first = both["tiers"][1];
  const auto& second = both["tiers"][2];
  EXPECT_GT(second["stores"], 0) << both;
  EXPECT_LE(second["stores"], first["evictions"]) << "it has other blocks than those: " << both;
  EXPECT_GT(second["loads"], 0) << both;
  for (const auto* tier : {&first, &second}) EXPECT_LE((*tier)["used_bytes"], (*tier)["capacity_bytes"]) << both;
  const double gained = both["hit_rate"].get<double>() - small["hit_rate"].get<double>();
  const double wanted = large["hit_rate"].get<double>() - small["hit_rate"].get<double>();
  EXPECT_GT(wanted, 3) << "the trace asks for nothing that a small disk has not";
  EXPECT_GT(gained, wanted * 0.8) << small["hit_rate"] << " " << both["hit_rate"] << " " << large["hit_rate"];
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/tier-2/superblock"));
}

TEST_F(ReplayCommand, the_store_hits_what_its_policy_hits) {
  // 1,000 slots of 64 KiB and a head (66,240 bytes).
  const Ran store = run("replay " + trace() + " --host 66240000 --verify --json", "");
  const Ran policy = run("replay " + trace() + " --capacity-blocks 1000 --json", "");
  ASSERT_EQ(store.exit_code, 0);
  ASSERT_EQ(policy.exit_code, 0);
  EXPECT_EQ(number(store.text, "wrong_blocks"), 0);
  EXPECT_NEAR(number(store.text, "hit_rate"), number(policy.text, "hit_rate"), 1.0) << store.text << policy.text;
}

TEST_F(ReplayCommand, a_seed_gives_the_same_trace) {
  const Ran one = run("trace generate --requests 100 --seed 5");
  EXPECT_EQ(one.text, run("trace generate --requests 100 --seed 5").text);
  EXPECT_NE(one.text, run("trace generate --requests 100 --seed 6").text);
}

TEST_F(ReplayCommand, the_demo_survives_its_kill) {
  const Ran ran = run("demo --seed 7 --json --dir " + dir_.path() + " --trace " + trace(), "");
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_EQ(number(ran.text, "wrong_blocks"), 0) << ran.text;
  EXPECT_GT(number(ran.text, "found_again"), 0) << ran.text;
  EXPECT_EQ(number(ran.text, "offloads_skipped"), 0) << ran.text;
  const Ran screen = run("demo --seed 7 --dir " + dir_.path() + " --trace " + trace(), " 2>&1");
  EXPECT_EQ(screen.exit_code, 0) << screen.text;
  for (const char* meaning :
       {"blocks in their prompts", "repeat an earlier block", "of the repeated ones", ": 0 wrong\n",
        "requests were done at the kill -9", "came back to the new process", "from disk: "}) {
    EXPECT_TRUE(contains(screen.text, meaning)) << meaning << "\n" << screen.text;
  }
  const Ran ended = run("demo --json --dir " + dir_.path() + " --trace " + trace() + " & child=$!; until [ -d " +
                        dir_.path() + "/kvbm-demo-*/tier ]; do sleep 0.01; done; " + "kill -INT $child; wait $child");
  EXPECT_EQ(ended.exit_code, 130) << ended.text;
  const Ran nowhere = run("demo --dir " + dir_.path() + "/none --trace " + trace());
  EXPECT_EQ(nowhere.exit_code, 2) << nowhere.text;
  EXPECT_TRUE(contains(nowhere.text, "/none: No such file or directory")) << nowhere.text;
}

// The other end of a terminal, for a command to write to.
class Terminal {
 public:
  Terminal() : end_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (end_ >= 0 && ::grantpt(end_) == 0 && ::unlockpt(end_) == 0) name_ = ::ptsname(end_);
  }
  ~Terminal() {
    if (end_ >= 0) ::close(end_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  [[nodiscard]] const std::string& name() const { return name_; }  // empty: the system gives none
  // Returns the text that was written, once no process has the terminal open any more.
  [[nodiscard]] std::string text() const {
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; (n = ::read(end_, buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<size_t>(n));
    return text;
  }

 private:
  int end_;
  std::string name_;
};

TEST_F(ReplayCommand, progress_is_drawn_on_a_terminal_alone) {
  const std::string in_dir = "TMPDIR=" + dir_.path();
  for (const std::string& command :
       {"replay " + trace() + " --capacity-blocks 100,1k --policy all",
        "replay " + trace() + " --host 16MiB --disk 256MiB --verify", "demo --trace " + trace()}) {
    const Ran piped = run(command, " 2>&1", in_dir);
    EXPECT_EQ(piped.exit_code, 0) << piped.text;
    for (const char c : piped.text)
      EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ') << static_cast<int>(c);
    const Terminal terminal;
    if (terminal.name().empty()) GTEST_SKIP() << "a terminal: the system gives none";
    const Ran seen = run(command, (" 2> " + terminal.name()).c_str(), in_dir);
    EXPECT_EQ(seen.exit_code, 0);
    const std::string drawn = terminal.text();
    EXPECT_TRUE(contains(drawn, "\r\033[Kreplaying ")) << drawn;
    const Ran quiet = run(command + " --json", (" 2> " + terminal.name()).c_str(), in_dir);
    EXPECT_EQ(quiet.exit_code, 0);
    EXPECT_EQ(terminal.text(), "");
  }
}

}  // namespace
}  // namespace replay_command_test
