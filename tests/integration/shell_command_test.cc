// Shell completions and manual page: they have every command and option that --help shows, and no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/run_command.h"
#include "support/temp_dir.h"

namespace shell_command_test {
namespace {

using kvbm::test::contains;
using kvbm::test::run;

// For each command, such as `kvbm trace generate`, its options and subcommands.
using Offers = std::map<std::string, std::set<std::string>>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Reads the help of a command and its subcommands.
void read_help(const std::string& path, Offers& out) {
  static const std::regex option("^ {2,6}(?:-\\w, *)?(--[a-z0-9-]+)");
  static const std::regex command("^ {2}([a-z_0-9]+) ");
  const auto ran = run(path.substr(4) + " --help");
  ASSERT_EQ(ran.exit_code, 0) << path;
  std::set<std::string>& words = out[path];
  bool commands = false;
  std::vector<std::string> below;
  for (const std::string& line : lines_of(ran.text)) {
    std::smatch found;
    if (!line.empty() && line[0] != ' ') commands = std::tolower(line[0]) == 's' && contains(line, ":");
    if (commands && std::regex_search(line, found, command)) {
      below.push_back(found[1]);
    } else if (std::regex_search(line, found, option)) {
      words.insert(found[1]);
    }
  }
  words.insert(below.begin(), below.end());
  for (const std::string& name : below) read_help(path + " " + name, out);
}

const Offers& helped() {
  static const Offers offers = [] {
    Offers read;
    read_help("kvbm", read);
    return read;
  }();
  return offers;
}

// Adds the subcommands to the words that a command offers.
void add_commands(Offers& offers) {
  std::vector<std::string> paths;
  for (const auto& [path, words] : offers) paths.push_back(path);
  for (const std::string& path : paths) {
    const size_t space = path.rfind(' ');
    if (space != std::string::npos) offers[path.substr(0, space)].insert(path.substr(space + 1));
  }
}

class ShellCommand : public ::testing::Test {
 protected:
  // Returns the output of `shell` for `text`, run after the completion script that kvbm prints for it.
  std::string said(const std::string& shell, const std::string& text) const {
    const std::string script = dir_.path() + "/script";
    const std::string heard = dir_.path() + "/heard";
    EXPECT_EQ(run("completion " + shell, (" > " + script).c_str()).exit_code, 0);
    std::ofstream(script, std::ios::app) << text;
    EXPECT_EQ(std::system((shell + " " + script + " > " + heard + " 2>&1").c_str()), 0);
    std::ifstream in(heard);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static bool is_here(const std::string& shell) {
    return std::system(("command -v " + shell + " > /dev/null").c_str()) == 0;
  }
  // Parses the shell's lines `kvbm replay:--host --disk`, one for each command.
  static Offers read_answers(const std::string& text) {
    Offers answers;
    for (const std::string& line : lines_of(text)) {
      const size_t colon = line.find(':');
      std::istringstream words(line.substr(std::min(line.size(), colon + 1)));
      std::set<std::string>& of = answers[line.substr(0, colon)];
      for (std::string word; words >> word;) of.insert(word);
    }
    return answers;
  }
  kvbm::test::TempDir dir_;
};

constexpr const char* kAskBash =
    "ask() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _kvbm; echo \"${COMPREPLY[*]}\"; }\n";

TEST_F(ShellCommand, bash_completes_a_part_of_an_option) {
  const std::string text = said("bash", std::string(kAskBash) +
                                            "ask kvbm replay --cap\nask kvbm replay trace.jsonl --host 1GiB --veri\n"
                                            "ask kvbm rep\nask kvbm bench codec_\n");
  EXPECT_EQ(text, "--capacity-blocks --capacity-tokens\n--verify\nreplay\ncodec_path\n");
}

TEST_F(ShellCommand, bash_completes_all_that_help_shows) {
  std::string asked = kAskBash;
  for (const auto& [path, words] : helped()) asked += "echo -n '" + path + ":'; ask " + path + " ''\n";
  EXPECT_EQ(read_answers(said("bash", asked)), helped());
}

TEST_F(ShellCommand, zsh_completes_all_that_help_shows) {
  if (!is_here("zsh")) GTEST_SKIP() << "no zsh here";
  // compadd works in the line editor only, and compdef, which the script calls, in an interactive shell. Errors about a
  // missing compdef are removed.
  std::string asked = "compadd() { shift; echo \"$*\"; }\n";
  for (const auto& [path, words] : helped()) {
    asked += "echo -n '" + path + ":'; words=(" + path + " ''); CURRENT=$#words; _kvbm\n";
  }
  Offers answers = read_answers(said("zsh", asked));
  for (auto at = answers.begin(); at != answers.end();)
    at = at->first.rfind("kvbm", 0) == 0 ? std::next(at) : answers.erase(at);
  EXPECT_EQ(answers, helped());
}

TEST_F(ShellCommand, fish_is_told_all_that_help_shows) {
  static const std::regex line_of(
      "^complete -c kvbm (?:-f )?-n '__kvbm_at \"([^\"]*)\"' -(l|a) ([a-z0-9_-]+) (?:-r )?-d '.");
  Offers told;
  for (const std::string& line : lines_of(run("completion fish").text)) {
    if (line.rfind("complete", 0) != 0) continue;
    std::smatch found;
    ASSERT_TRUE(std::regex_search(line, found, line_of)) << line;
    const std::string word = (found[2] == "l" ? "--" : "") + found[3].str();
    EXPECT_TRUE(told[found[1]].insert(word).second) << "twice: " << line;
  }
  EXPECT_EQ(told, helped());
}

TEST_F(ShellCommand, fish_completes_by_the_command_before) {
  if (!is_here("fish")) GTEST_SKIP() << "no fish here";
  const std::string text = said("fish",
                                "complete -C 'kvbm replay --cap' | string split -f 1 \\t\n"
                                "complete -C 'kvbm bench codec --hu' | string split -f 1 \\t\n"
                                "complete -C 'kvbm trace gen' | string split -f 1 \\t\n");
  EXPECT_EQ(text, "--capacity-blocks\n--capacity-tokens\n--huge-pages\ngenerate\n");
}

TEST_F(ShellCommand, the_manual_page_describes_all_that_help_shows_once) {
  static const std::regex option("--[a-z0-9-]+");
  std::string page = run("man").text;
  for (size_t at = page.find("\\-"); at != std::string::npos; at = page.find("\\-", at)) page.erase(at, 1);
  Offers described;
  std::string path;
  for (const std::string& line : lines_of(page)) {
    if (line.rfind(".SS ", 0) == 0 || line.rfind(".SH ", 0) == 0) {
      path = line.rfind(".SS ", 0) == 0 ? line.substr(4) : line == ".SH OPTIONS" ? "kvbm" : "";
      if (path.empty()) continue;
      EXPECT_EQ(described.count(path), 0U) << path << " has two places";
      described[path];
    }
    if (path.empty() || line.rfind("\\fB", 0) != 0) continue;
    const std::string names = line.substr(0, line.find("\\fR"));
    for (std::sregex_iterator name(names.begin(), names.end(), option), end; name != end; ++name) {
      EXPECT_TRUE(described[path].insert(name->str()).second) << "twice: " << path << " " << name->str();
    }
  }
  add_commands(described);
  EXPECT_EQ(described, helped());
}

// Checks the collected help texts, so that the tests above do not compare empty sets.
TEST_F(ShellCommand, help_shows_commands_below_commands_and_options_in_groups) {
  ASSERT_GT(helped().size(), 30U);
  for (const char* word : {"--help", "--json", "--policy", "--capacity-blocks", "--host", "--disk", "--verify"}) {
    EXPECT_EQ(helped().at("kvbm replay").count(word), 1U) << word;
  }
  EXPECT_EQ(helped().at("kvbm").count("replay"), 1U);
  EXPECT_EQ(helped().at("kvbm trace generate").count("--seed"), 1U);
}

TEST_F(ShellCommand, exit_codes_are_the_same_everywhere) {
  const std::string page = run("man").text;
  const std::string help = run("--help").text;
  for (const char* code : {"0", "1", "2", "3", "130"}) {
    EXPECT_TRUE(contains(page, std::string(".TP\n") + code + "\n")) << code << "\n" << page;
    EXPECT_TRUE(std::regex_search(help, std::regex("Exit codes:[^]*\\b" + std::string(code) + " "))) << code << "\n"
                                                                                                     << help;
  }
}

}  // namespace
}  // namespace shell_command_test
