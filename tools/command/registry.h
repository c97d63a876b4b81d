// Registers the subcommands of the `kvbm` command. Each is one file tools/command/<name>.{h,cc} with a function `void
// add_<name>(Registry&)`, and one line in main.cc.
//
// Registry::add makes the subcommand (to which options and a footer with examples are added) and records its
// callable; every subcommand has --json. Option values must live in what the callable captures (a shared_ptr to a
// struct), because they are written by reference when the command line is parsed.
//
// CLI11 parses the command line. It consists of headers and is slow to compile, so registry.cc alone includes it.
// Command and Option are handles of objects in the Registry: cheap to copy, and invalid after it.
//
// Exit codes:
//   kDone         the work is done
//   kFailed       the work failed
//   kBadInput     usage, a file or a value is not acceptable
//   kInPart       a pool has only a part of the file
//   kInterrupted  ended on request before completion; the printed output is true of the completed part
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
inline constexpr int kInterrupted = 130;  // the exit code of shells after Ctrl-C

struct Output {
  bool json = false;
};

class Option {
 public:
  // Returns the fault of a value, or "".
  using Check = std::function<std::string(const std::string& value)>;

  explicit Option(CLI::Option& option) : option_(&option) {}

  // Sets the name of the value in the help; INT, UINT, FLOAT or TEXT without it.
  Option& type_name(const std::string& name);
  Option& required();
  // Shows in the help the value that the variable has now.
  Option& show_default();
  // Takes the value from this environment variable if the command line has none.
  Option& environment(const std::string& variable);
  // Allows the option more than once, with one value each time.
  Option& repeatable();
  // Hides the option from help and completion.
  Option& hide();
  Option& check(const Check& check);
  Option& one_of(std::initializer_list<std::string> values);
  // Limits the value to a range that includes both ends. Help names their type: INT in [1 - 7].
  Option& range(int least, int most);
  Option& range(uint32_t least, uint32_t most);
  Option& range(uint64_t least, uint64_t most);
  Option& range(double least, double most);
  // Refuses a count below zero, which would be read as a large one.
  Option& not_negative();

  // Returns whether the parsed command line has the option.
  [[nodiscard]] bool given() const;
  // Returns all names: -o,--output.
  [[nodiscard]] std::string names() const;
  // Returns the names with two dashes, without the dashes: output.
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

  // Adds an option. `names` as "-o,--output"; without dashes it is a positional. `value` is written when the option
  // is parsed.
  Option add_option(const std::string& names, std::string& value, const std::string& description);
  Option add_option(const std::string& names, int& value, const std::string& description);
  Option add_option(const std::string& names, uint32_t& value, const std::string& description);
  Option add_option(const std::string& names, uint64_t& value, const std::string& description);
  Option add_option(const std::string& names, double& value, const std::string& description);
  Option add_option(const std::string& names, std::vector<std::string>& values, const std::string& description);
  Option add_flag(const std::string& names, bool& value, const std::string& description);
  // Adds a group. Its options are the command's; help shows them under this title.
  Command add_option_group(const std::string& title);
  // Sets the text at the end of the help.
  Command& footer(const std::string& text);
  // Hides the command from help and completion.
  Command& hide();

  [[nodiscard]] const std::string& name() const;
  // Returns the name with those of the commands above: kvbm trace generate.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::string description() const;
  [[nodiscard]] std::string footer() const;
  // Return what the help shows: the commands below this one; its options, and those of its groups.
  [[nodiscard]] std::vector<Command> commands() const;
  [[nodiscard]] std::vector<Option> options() const;
  // Returns the names of the options in the parsed command line, without those of its groups: --output.
  [[nodiscard]] std::vector<std::string> given() const;

 private:
  friend class Registry;
  CLI::App* app_;
};

class Registry {
 public:
  using Run = std::function<int(const Output&)>;

  // `version` is the output of --version.
  Registry(const std::string& name, const std::string& description, const std::string& version);
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  ~Registry();

  // Adds the subcommand `name`. `run` is called after a parse that chose it, and returns the exit code.
  Command add(const std::string& name, const std::string& description, Run run);
  // Adds a subcommand of a subcommand, as in `kvbm trace generate`.
  Command add(Command parent, const std::string& name, const std::string& description, Run run);
  // Adds a subcommand that only holds others.
  Command add_group(const std::string& name, const std::string& description);

  [[nodiscard]] Command root() const { return Command(*root_); }
  // Returns the exit code if there is nothing to run: help was printed, or an error on stderr.
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

// Prints on stderr `kvbm: error: <what>` and, if there is one, `  hint: <hint>`. Returns `exit_code`.
int fail(int exit_code, const std::string& what, const std::string& hint = "");
// Prints a failed Status. Returns kBadInput for caller bugs, kFailed for the rest.
int fail(const Status& status, const std::string& hint = "");

}  // namespace kvbm::command
