// How a subcommand joins the `kvbm` command: one file tools/command/<name>.{h,cc} with a function
// `void add_<name>(Registry&)`, and one line in main.cc.
//
// Registry::add gives the subcommand its CLI::App (options, footer with examples) and remembers what
// to run; --json is on every one of them. The option values live in whatever the callable captures
// (a shared_ptr to a struct), for CLI11 writes to them by reference when it parses.
//
// Exit codes: kDone, kFailed (the work failed), kBadInput (usage, a file or a value is not acceptable),
// kInPart (a pool has only a part of the file), kInterrupted (asked to end before it was through; what it printed is
// true of what was done).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace kvbm::command {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kInPart = 3;
inline constexpr int kInterrupted = 130;  // what shells give for Ctrl-C

struct Output {
  bool json = false;
};

class Registry {
 public:
  using Run = std::function<int(const Output&)>;

  explicit Registry(CLI::App& root) : root_(root) {}
  // The subcommand `name`; `run` is called after a parse that chose it and returns the exit code.
  CLI::App& add(const std::string& name, const std::string& description, Run run);
  // A subcommand of a subcommand, as in `kvbm trace generate`.
  CLI::App& add(CLI::App& parent, const std::string& name, const std::string& description, Run run);
  // A subcommand that only holds others.
  CLI::App& add_group(const std::string& name, const std::string& description);

  [[nodiscard]] CLI::App& root() const noexcept { return root_; }
  // Runs the deepest subcommand that the parse chose.
  [[nodiscard]] int run_chosen() const;

 private:
  struct Entry {
    CLI::App* app;
    std::shared_ptr<Output> output;
    Run run;
  };
  CLI::App& root_;
  std::vector<Entry> entries_;
};

// Says on stderr `kvbm: error: <what>` and, where there is one, `  hint: <hint>`; returns `exit_code`.
int fail(int exit_code, const std::string& what, const std::string& hint = "");
// The same for a failed Status: kBadInput for caller bugs, kFailed for the rest.
int fail(const Status& status, const std::string& hint = "");
// The commands below `app` that its help shows, and its options. CLI11 keeps an option group as a subcommand without a
// name: it is no command, and its options belong to the command around it.
std::vector<const CLI::App*> commands_below(const CLI::App& app);
std::vector<const CLI::Option*> options_shown(const CLI::App& app);
// Checks of an option's value. CLI11's own take a number that is none (nan), and a count below zero for a large one.
CLI::Validator within(double least, double most);
CLI::Validator not_negative();
// What to say to a command line that does not parse.
int report_parse_error(const CLI::App& root, const CLI::ParseError& error);

}  // namespace kvbm::command
