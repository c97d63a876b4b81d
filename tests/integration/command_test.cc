// The kvbm command as a user runs it: output, messages and exit codes.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "support/run_command.h"

namespace command_test {
namespace {

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;

TEST(Command, size_of_a_preset_as_json) {
  const Ran ran = run("size --preset llama-3.3-70b --tokens 100000 --json");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_TRUE(contains(ran.text, "\"bytes_per_token\": 327680,")) << ran.text;
  EXPECT_TRUE(contains(ran.text, "\"total_bytes\": 32768000000,")) << ran.text;
}

TEST(Command, size_prints_both_units_and_the_formula) {
  const Ran ran = run("size --preset qwen3-8b --tokens 100k --host 64GiB --context-table");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_TRUE(contains(ran.text, "14.75 GB (13.73 GiB)")) << ran.text;
  EXPECT_TRUE(contains(ran.text, "2 * 8 * 128")) << ran.text;
  EXPECT_TRUE(contains(ran.text, "or 4 sequences of 100,000 tokens, or one sequence of 466,033")) << ran.text;
  EXPECT_TRUE(contains(ran.text, " 1 session ")) << ran.text;
  const Ran one = run("size --preset qwen3-8b --host 64GiB");
  EXPECT_TRUE(contains(one.text, "1 token * 1 sequence: ")) << one.text;
  EXPECT_TRUE(contains(one.text, "holds 466,033 tokens, or one sequence of 466,033")) << one.text;
}

TEST(Command, bad_input_says_what_to_do_and_exits_2) {
  for (const char* arguments :
       {"", "siez", "size", "size --preset nothing", "size --config /nonexistent/config.json",
        "size --preset qwen3-8b --host 64G", "size --preset qwen3-8b --tokens 0", "size --preset qwen3-8b --bits 0",
        "size --preset qwen3-8b --bits many", "completion tcsh", "doctor --dir /nonexistent", "bench",
        "bench disk --dir /nonexistent", "bench index --rounds 0"}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments << "\n" << ran.text;
    EXPECT_FALSE(ran.text.empty()) << arguments;
  }
  EXPECT_TRUE(contains(run("siez").text, "did you mean `size`?"));
  EXPECT_TRUE(contains(run("size --preset nothing").text, "hint: "));
  EXPECT_TRUE(contains(run("size --preset qwen3-8b --bits 7").text, "16, 8 or 4 bits, not 7"));
  EXPECT_EQ(run("size --preset qwen3-8b --bits 7").exit_code, 2);
  for (const char* arguments :
       {"size --preset qwen3-8b --bits 0", "size --preset qwen3-8b --tokens abc", "size --preset qwen3-8b --batch 0"}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments;
    EXPECT_FALSE(contains(ran.text, "list-presets")) << arguments << "\n" << ran.text;
  }
  EXPECT_TRUE(contains(run("size --preset qwen3-8b --tokens abc").text, "--tokens"));
}

// Names of files are bytes; JSON is UTF-8.
TEST(Command, bytes_that_are_no_text_are_replaced_in_json) {
  const Ran ran = run("config --json", "", "KVBM_NODE_UCX_DEVICES='\xff\xfe'");
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_TRUE(nlohmann::json::accept(ran.text)) << ran.text;
  EXPECT_TRUE(contains(ran.text, "\xEF\xBF\xBD")) << ran.text;
}

TEST(Command, a_directory_is_no_config_file) {
  const Ran ran = run("size --config /");
  EXPECT_EQ(ran.exit_code, 2) << ran.text;
  EXPECT_TRUE(contains(ran.text, "the config file is a directory: /")) << ran.text;
}

TEST(Command, what_is_no_number_is_refused) {
  for (const char* arguments :
       {"top none --interval nan", "stats --node 127.0.0.1:1 --timeout nan", "peers --timeout nan"}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments << "\n" << ran.text;
    EXPECT_TRUE(contains(ran.text, "nan is no number in [0.01 - ")) << ran.text;
  }
}

TEST(Command, help_version_completion_and_man_exit_0) {
  for (const char* arguments : {"--help", "--version", "size --help", "doctor", "doctor --json", "size --list-presets",
                                "completion bash", "completion zsh", "completion fish", "man"}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, 0) << arguments << "\n" << ran.text;
    EXPECT_FALSE(ran.text.empty()) << arguments;
  }
  EXPECT_TRUE(contains(run("completion bash").text, "--list-presets"));
  EXPECT_TRUE(contains(run("man").text, ".SS kvbm size"));
  EXPECT_FALSE(contains(run("--help").text, "manual page"));
  for (const char* arguments : {"completion bash --json", "man --json"}) {
    const auto said = nlohmann::json::parse(run(arguments).text, nullptr, false);
    ASSERT_TRUE(said.is_object()) << arguments;
    EXPECT_TRUE(contains(said.begin()->get<std::string>(), "kvbm")) << arguments;
  }
}

}  // namespace
}  // namespace command_test
