#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/crypto/random.h"
#include "replay/policies.h"
#include "replay/policy_replay.h"
#include "trace/generate.h"
#include "trace/mooncake.h"
#include "trace/read.h"

namespace kvbm::trace::trace_test {
namespace {

constexpr const char* kGood = "{\"timestamp\": 5, \"input_length\": 600, \"output_length\": 3, \"hash_ids\": [1, 2]}\n";

const ParseOptions kSkipping{.skip_bad = true};

TEST(Mooncake, reads_what_it_writes) {
  for (const Workload workload : {Workload::chat, Workload::agent, Workload::retrieval, Workload::mixed}) {
    const Trace trace = generate({.workload = workload, .seed = 3, .requests = 500, .duration_s = 300}).value();
    const auto parsed = parse_json_lines(to_mooncake(trace), {});
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed.value().trace.hash_ids, trace.hash_ids);
    EXPECT_EQ(to_mooncake(parsed.value().trace), to_mooncake(trace));
  }
}

TEST(Mooncake, a_bad_line_is_named_with_what_is_wrong) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{", "not valid JSON"},
      {"[1]", "not a JSON object"},
      {"{\"timestamp\":1,\"output_length\":1,\"hash_ids\":[]}", "input_length is missing"},
      {"{\"timestamp\":-1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[]}", "timestamp must be a number"},
      {"{\"timestamp\":1,\"input_length\":9999999999,\"output_length\":1,\"hash_ids\":[]}", "input_length is above"},
      {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1}", "hash_ids is missing"},
      {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":3}", "hash_ids must be an array"},
      {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1,1.5]}", "hash_ids[1] must be"},
      {std::string((size_t{1} << 20) + 1, 'x'), "longer than"},
  };
  for (const auto& [line, what] : bad) {
    const auto failed = parse_json_lines(kGood + line + "\n" + kGood, {});
    ASSERT_FALSE(failed.ok()) << what;
    EXPECT_EQ(failed.status().code(), Code::invalid_argument);
    EXPECT_NE(failed.status().message().find("line 2: "), std::string::npos);
    EXPECT_NE(failed.status().message().find(what), std::string::npos) << failed.status().message();
    const auto skipped = parse_json_lines(kGood + line + "\n" + kGood, kSkipping);
    ASSERT_TRUE(skipped.ok());
    EXPECT_EQ(skipped.value().bad_lines, 1U);
    EXPECT_EQ(skipped.value().trace.requests.size(), 2U);
    EXPECT_EQ(skipped.value().trace.hash_ids.size(), 4U);
  }
}

TEST(Mooncake, any_damage_is_an_error_or_a_trace_but_no_crash) {
  SeededRandom random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string text = std::string(kGood) + kGood;
    for (uint64_t i = 0; i <= random.below(4); ++i) text[random.below(text.size())] = static_cast<char>(random.next());
    (void)parse_json_lines(text, kSkipping);
    (void)parse_json_lines(text.substr(0, random.below(text.size())), {});
    (void)parse_json_lines("[" + text, kSkipping);
  }
  (void)parse_json_lines(std::string(900'000, '['), {});
}

TEST(Generate, a_seed_gives_the_same_bytes_and_another_seed_others) {
  const GenerateOptions options{.workload = Workload::mixed, .seed = 5, .requests = 800, .duration_s = 400};
  GenerateOptions other = options;
  other.seed = 6;
  EXPECT_EQ(to_mooncake(generate(options).value()), to_mooncake(generate(options).value()));
  EXPECT_NE(to_mooncake(generate(options).value()), to_mooncake(generate(other).value()));
}

TEST(Generate, ids_form_trees_and_prompts_have_a_block_for_every_512_tokens) {
  for (const Workload workload : {Workload::chat, Workload::agent, Workload::retrieval, Workload::mixed}) {
    const Trace trace = generate({.workload = workload, .seed = 2, .requests = 3000, .duration_s = 900}).value();
    ASSERT_EQ(trace.requests.size(), 3000U);
    std::map<uint64_t, uint64_t> parents;
    uint64_t before = 0;
    for (const Request& request : trace.requests) {
      EXPECT_GE(request.timestamp_ms, before);
      before = request.timestamp_ms;
      EXPECT_EQ(request.count, (request.input_length + 511) / 512);
      uint64_t parent = UINT64_MAX;
      for (const uint64_t id : trace.blocks(request)) {
        EXPECT_EQ(parents.try_emplace(id, parent).first->second, parent);
        parent = id;
      }
    }
  }
}

TEST(Generate, chat_has_the_documented_share_of_continuations) {
  const Trace trace = generate({.workload = Workload::chat, .seed = 4, .requests = 12000, .duration_s = 3600}).value();
  const replay::PathTrace paths = replay::make_paths(trace);
  EXPECT_NEAR(replay::replay_unlimited(paths).hit_rate, 37, 3);
  std::vector<uint64_t> gaps;
  std::map<uint64_t, uint64_t> seen;
  for (const Request& request : trace.requests) {
    const auto blocks = trace.blocks(request);
    size_t known = 0;
    while (known < blocks.size() && seen.contains(blocks[known])) ++known;
    if (known > 1) gaps.push_back(request.timestamp_ms - seen[blocks[known - 1]]);
    for (const uint64_t id : blocks) seen[id] = request.timestamp_ms;
  }
  EXPECT_NEAR(static_cast<double>(gaps.size()) / 12000, 0.39, 0.06);
  std::sort(gaps.begin(), gaps.end());
  EXPECT_NEAR(static_cast<double>(gaps[gaps.size() / 2]) / 1000, 123, 20);
}

TEST(Generate, refuses_nothing_to_generate) {
  EXPECT_FALSE(generate({.workload = Workload::chat, .seed = 1, .requests = 0}).ok());
  EXPECT_FALSE(generate({.workload = Workload::chat, .seed = 1, .requests = 1, .duration_s = 0}).ok());
  EXPECT_FALSE(workload_named("poetry").has_value());
}

TEST(PolicyReplay, counts_hits_by_the_rule) {
  const char* text =
      "{\"timestamp\":0,\"input_length\":1536,\"output_length\":1,\"hash_ids\":[1,2,3]}\n"
      "{\"timestamp\":0,\"input_length\":1536,\"output_length\":1,\"hash_ids\":[1,2,4]}\n"
      "{\"timestamp\":0,\"input_length\":1536,\"output_length\":1,\"hash_ids\":[1,2,3]}\n";
  const replay::PathTrace paths = replay::make_paths(parse_json_lines(text, {}).value().trace);
  EXPECT_EQ(replay::replay_policy(paths, "lru", 4).value().hits, 5U);
  EXPECT_EQ(replay::replay_policy(paths, "lru", 3).value().hits, 4U);
  EXPECT_EQ(replay::replay_optimal(paths, 3).hits, 5U);
  EXPECT_EQ(replay::replay_unlimited(paths).hits, 5U);
  EXPECT_FALSE(replay::replay_policy(paths, "newest", 3).ok());
  EXPECT_FALSE(replay::replay_policy(paths, "lru", 0).ok());
}

TEST(PolicyReplay, no_policy_beats_the_optimum_and_enough_room_serves_all) {
  const Trace trace = generate({.workload = Workload::mixed, .seed = 9, .requests = 1500, .duration_s = 600}).value();
  const replay::PathTrace paths = replay::make_paths(trace);
  for (const std::string_view name : replay::policy_names()) {
    for (const size_t capacity : {size_t{300}, size_t{2000}}) {
      EXPECT_LE(replay::replay_policy(paths, name, capacity).value().hits, replay::replay_optimal(paths, capacity).hits)
          << name;
    }
    EXPECT_EQ(replay::replay_policy(paths, name, paths.parent.size()).value().hits,
              replay::replay_unlimited(paths).hits);
  }
}

// Every other request is a long one that no later request continues. The short ones between return 200 requests later,
// when LRU has evicted them.
TEST(PolicyReplay, the_default_learns_that_short_prompts_return_and_long_ones_do_not) {
  Trace trace;
  uint64_t id = 0;
  std::vector<uint64_t> firsts;  // ids of the short ones begin here
  for (uint32_t r = 0; r < 12'000; ++r) {
    const bool is_short = r % 2 == 1;
    const bool again = is_short && r / 200 % 2 == 1;
    const uint32_t count = is_short ? 4 : 24;
    const uint64_t first = again ? firsts[firsts.size() - 100 + r % 200 / 2] : id;
    trace.requests.push_back({r, count * kTokensPerBlock, 1, trace.hash_ids.size(), count});
    for (uint32_t i = 0; i + 1 < count; ++i) trace.hash_ids.push_back(first + i);
    trace.hash_ids.push_back(id + count);  // the partial last block
    if (is_short && !again) firsts.push_back(id);
    id += count + 1;
  }
  const replay::PathTrace paths = replay::make_paths(trace);
  EXPECT_EQ(replay::replay_policy(paths, "lru", 1000).value().hits, 0U);
  EXPECT_GE(replay::replay_policy(paths, policy::kDefaultPolicy, 1000).value().hits,
            replay::replay_optimal(paths, 1000).hits * 9 / 10);
}

TEST(PolicyReplay, the_default_is_no_worse_where_popularity_or_recency_is_all_there_is) {
  struct Case {
    GenerateOptions options;
    size_t capacity;
    std::string_view rival;
  };
  const Case cases[] = {
      {{.workload = Workload::mixed, .seed = 3, .requests = 40'000}, 30'000, "lru"},
      {{.workload = Workload::retrieval, .seed = 1, .requests = 12'000}, 10'000, "s3fifo"},
      {{.workload = Workload::retrieval, .seed = 1, .requests = 12'000}, 30'000, "lfu"},
  };
  for (const Case& at : cases) {
    const replay::PathTrace paths = replay::make_paths(generate(at.options).value());
    EXPECT_GE(replay::replay_policy(paths, policy::kDefaultPolicy, at.capacity).value().hit_rate,
              replay::replay_policy(paths, at.rival, at.capacity).value().hit_rate)
        << at.rival << " at " << at.capacity;
  }
}

TEST(PolicyReplay, the_default_reaches_its_bars_on_the_production_trace) {
  const char* given = std::getenv("KVBMTEST_SHARED_DATA");
  const std::filesystem::path folder =
      given != nullptr ? given : std::filesystem::path(KVBM_TEST_DATA) / "../../../shared/data";
  const std::filesystem::path file = folder / "mooncake_conversation_trace.jsonl";
  if (!std::filesystem::exists(file))
    GTEST_SKIP() << "no " << file.filename() << " (KVBMTEST_SHARED_DATA names its folder)";
  const replay::PathTrace paths = replay::make_paths(read(file.string(), {}).value().trace);
  const std::map<size_t, std::pair<double, double>> bars = {
      {1000, {7.6, 19.07}}, {3000, {12.5, 29.45}}, {10000, {22.8, 36.64}}, {30000, {32.7, 36.64}}};
  for (const auto& [capacity, bar] : bars) {
    const double ours = replay::replay_policy(paths, policy::kDefaultPolicy, capacity).value().hit_rate;
    EXPECT_GE(ours, bar.first) << capacity;
    EXPECT_NEAR(replay::replay_optimal(paths, capacity).hit_rate, bar.second, 0.005) << capacity;
    for (const std::string_view name : replay::policy_names()) {
      EXPECT_LE(replay::replay_policy(paths, name, capacity).value().hit_rate, ours) << name << " at " << capacity;
    }
  }
}

}  // namespace
}  // namespace kvbm::trace::trace_test
