// How a subcommand joins the `kvbm` command: one file tools/command/<name>.{h,cc} with a function
// `void add_<name>(Registry&)`, and one line in main.cc.
//
// Registry::add gives the subcommand (to which options and a footer with examples are added) and remembers what to
// run; --json is on every one of them. Option values live in whatever the callable captures (a shared_ptr to a
// struct), for they are written by reference when the command line is parsed.
//
// CLI11 parses the command line. It is all headers and slow to compile, so registry.cc alone includes it. Command and
// Option are handles of what the Registry holds: cheap to copy, and of no use after it.
//
// Exit codes: kDone, kFailed (the work failed), kBadInput (usage, a file or a value is not acceptable),
// kInPart (a pool has only a part of the file), kInterrupted (asked to end before it was through; what it printed is
// true of what was done).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kvbm::command {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kInPart = 3;
inline constexpr int kInterrupted = 130;  // what shells give for Ctrl-C

struct Output {
  bool json = false;
};

class Option {
 public:
  // Says what is wrong with a value; "" where nothing is.
  using Check = std::function<std::string(const std::string& value)>;

  explicit Option(CLI::Option& option) : option_(&option) {}

  // What help calls the value; INT, UINT, FLOAT or TEXT without it.
  Option& type_name(const std::string& name);
  Option& required();
  // Help shows the value that the variable has now.
  Option& show_default();
  // This variable of the environment gives the value where the command line has none.
  Option& environment(const std::string& variable);
  // May be given more than once, with one value each time.
  Option& repeatable();
  // Neither help nor completion shows it.
  Option& hide();
  Option& check(const Check& check);
  Option& one_of(std::initializer_list<std::string> values);
  // Both ends are in it. Help names their type: INT in [1 - 7].
  Option& range(int least, int most);
  Option& range(uint32_t least, uint32_t most);
  Option& range(uint64_t least, uint64_t most);
  Option& range(double least, double most);
  // Refuses a count below zero, which would be read as a large one.
  Option& not_negative();

  // Whether the command line that was parsed has it.
  [[nodiscard]] bool given() const;
  // All of them: -o,--output.
  [[nodiscard]] std::string names() const;
  // Those with two dashes, which are left out: output.
  [[nodiscard]] const std::vector<std::string>& long_names() const;
  [[nodiscard]] bool is_positional() const;
  [[nodiscard]] bool takes_value() const;
  [[nodiscard]] std::string type_name() const;
  [[nodiscard]] const std::string& description() const;

 private:
  friend class Command;
  CLI::Option* option_;
};

class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  // `names` as "-o,--output"; without dashes it is a positional. `value` is written when the option is parsed.
  Option add_option(const std::string& names, std::string& value, const std::string& description);
  Option add_option(const std::string& names, int& value, const std::string& description);
  Option add_option(const std::string& names, uint32_t& value, const std::string& description);
  Option add_option(const std::string& names, uint64_t& value, const std::string& description);
  Option add_option(const std::string& names, double& value, const std::string& description);
  Option add_option(const std::string& names, std::vector<std::string>& values, const std::string& description);
  Option add_flag(const std::string& names, bool& value, const std::string& description);
  // Its options are the command's; help shows them under this title.
  Command add_option_group(const std::string& title);
  // What help ends with.
  Command& footer(const std::string& text);
  // Neither help nor completion shows it.
  Command& hide();

  [[nodiscard]] const std::string& name() const;
  // With those of the commands above: kvbm trace generate.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::string description() const;
  [[nodiscard]] std::string footer() const;
  // What help shows: the commands below it; its options, and those of its groups.
  [[nodiscard]] std::vector<Command> commands() const;
  [[nodiscard]] std::vector<Option> options() const;
  // Names of the options, without those of its groups, that the command line which was parsed has: --output.
  [[nodiscard]] std::vector<std::string> given() const;

 private:
  friend class Registry;
  CLI::App* app_;
};

class Registry {
 public:
  using Run = std::function<int(const Output&)>;

  // `version` is what --version prints.
  Registry(const std::string& name, const std::string& description, const std::string& version);
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  ~Registry();

  // The subcommand `name`; `run` is called after a parse that chose it and returns the exit code.
  Command add(const std::string& name, const std::string& description, Run run);
  // A subcommand of a subcommand, as in `kvbm trace generate`.
  Command add(Command parent, const std::string& name, const std::string& description, Run run);
  // A subcommand that only holds others.
  Command add_group(const std::string& name, const std::string& description);

  [[nodiscard]] Command root() const { return Command(*root_); }
  // The exit code where there is nothing to run: help was asked for and printed, or what is wrong was said on stderr.
  std::optional<int> parse(int argc, char** argv);
  // Runs the deepest subcommand that the parse chose.
  [[nodiscard]] int run_chosen() const;

 private:
  struct Entry {
    CLI::App* app;
    std::shared_ptr<Output> output;
    Run run;
  };
  std::unique_ptr<CLI::App> root_;
  std::vector<Entry> entries_;
};

// Says on stderr `kvbm: error: <what>` and, where there is one, `  hint: <hint>`; returns `exit_code`.
int fail(int exit_code, const std::string& what, const std::string& hint = "");
// The same for a failed Status: kBadInput for caller bugs, kFailed for the rest.
int fail(const Status& status, const std::string& hint = "");

}  // namespace kvbm::command
