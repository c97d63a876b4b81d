#include "command/registry.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/config/edit_distance.h"

namespace kvbm::command {

namespace {

CLI::App& deepest_chosen(CLI::App& root) {
  CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return *app;
}

// Returns the visible name nearest to `word` among the subcommands and options of `command`; "" when none is near.
std::string nearest_name(const Command& command, const std::string& word) {
  std::string best;
  size_t best_distance = 3;
  const auto consider = [&](const std::string& candidate) {
    const size_t d = edit_distance(word, candidate);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  };
  for (const Command& sub : command.commands()) consider(sub.name());
  for (const Option& option : command.options()) {
    for (const std::string& name : option.long_names()) consider("--" + name);
  }
  return best;
}

// Reports a command line that does not parse.
int report_parse_error(CLI::App& root, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {  // --help or --version
    return root.exit(error);
  }
  const Command command(deepest_chosen(root));
  std::string hint = "run `" + command.path() + " --help` to see what it takes";
  const std::vector<std::string> extras = root.remaining(true);
  if (!extras.empty()) {
    const std::string near = nearest_name(command, extras.front());
    if (!near.empty()) hint = "did you mean `" + near + "`? `" + command.path() + " --help` lists all";
    return fail(kBadInput, "`" + command.path() + "` does not take `" + extras.front() + "`", hint);
  }
  return fail(kBadInput, error.what(), hint);
}

template <class Value>
Option add_value(CLI::App& app, const std::string& names, Value& value, const std::string& description) {
  return Option(*app.add_option(names, value, description));
}

}  // namespace

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::environment(const std::string& variable) {
  option_->envname(variable);
  return *this;
}

Option& Option::repeatable() {
  option_->take_all()->allow_extra_args(false);
  return *this;
}

Option& Option::hide() {
  option_->group("");
  return *this;
}

Option& Option::check(const Check& check) {
  option_->check(check);
  return *this;
}

Option& Option::one_of(std::initializer_list<std::string> values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::range(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::range(uint32_t least, uint32_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::range(uint64_t least, uint64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

// The check of CLI11 accepts nan.
Option& Option::range(double least, double most) {
  std::ostringstream words;
  words << "in [" << least << " - " << most << "]";
  const auto check = [least, most, range = words.str()](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool good = !text.empty() && *end == '\0' && value >= least && value <= most;
    return good ? std::string() : text + " is no number " + range;
  };
  option_->check(check, words.str());
  return *this;
}

Option& Option::not_negative() {
  return check([](const std::string& text) -> std::string {
    return text.rfind('-', 0) == 0 ? text + " is below zero" : std::string();
  });
}

bool Option::given() const { return option_->count() != 0; }

std::string Option::names() const { return option_->get_name(is_positional(), true); }

const std::vector<std::string>& Option::long_names() const { return option_->get_lnames(); }

bool Option::is_positional() const { return option_->get_lnames().empty() && option_->get_snames().empty(); }

bool Option::takes_value() const { return option_->get_items_expected_max() > 0; }

std::string Option::type_name() const { return option_->get_type_name(); }

const std::string& Option::description() const { return option_->get_description(); }

Option Command::add_option(const std::string& names, std::string& value, const std::string& description) {
  return add_value(*app_, names, value, description);
}

Option Command::add_option(const std::string& names, int& value, const std::string& description) {
  return add_value(*app_, names, value, description);
}

Option Command::add_option(const std::string& names, uint32_t& value, const std::string& description) {
  return add_value(*app_, names, value, description);
}

Option Command::add_option(const std::string& names, uint64_t& value, const std::string& description) {
  return add_value(*app_, names, value, description);
}

Option Command::add_option(const std::string& names, double& value, const std::string& description) {
  return add_value(*app_, names, value, description);
}

Option Command::add_option(const std::string& names, std::vector<std::string>& values, const std::string& description) {
  return add_value(*app_, names, values, description);
}

Option Command::add_flag(const std::string& names, bool& value, const std::string& description) {
  return Option(*app_->add_flag(names, value, description));
}

Command Command::add_option_group(const std::string& title) { return Command(*app_->add_option_group(title)); }

Command& Command::footer(const std::string& text) {
  app_->footer(text);
  return *this;
}

Command& Command::hide() {
  app_->group("");
  return *this;
}

const std::string& Command::name() const { return app_->get_name(); }

std::string Command::path() const {
  CLI::App* parent = app_->get_parent();
  return parent == nullptr ? name() : Command(*parent).path() + " " + name();
}

std::string Command::description() const { return app_->get_description(); }

std::string Command::footer() const { return app_->get_footer(); }

// CLI11 stores an option group as a subcommand without a name. Such a group is no command, and its options belong to
// the command around it.
std::vector<Command> Command::commands() const {
  std::vector<Command> shown;
  for (CLI::App* sub : app_->get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_name().empty() && !sub->get_group().empty()) shown.push_back(Command(*sub));
  }
  return shown;
}

std::vector<Option> Command::options() const {
  std::vector<Option> shown;
  for (CLI::Option* option : app_->get_options()) {
    if (!option->get_group().empty()) shown.push_back(Option(*option));
  }
  for (CLI::App* group : app_->get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); })) {
    for (const Option& option : Command(*group).options()) {
      if (option.option_ != group->get_help_ptr()) shown.push_back(option);
    }
  }
  return shown;
}

std::vector<std::string> Command::given() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->count() == 0) continue;
    // get_name() is empty for an option that the help does not list.
    names.push_back(option->get_lnames().empty() ? option->get_name() : "--" + option->get_lnames().front());
  }
  return names;
}

Registry::Registry(const std::string& name, const std::string& description, const std::string& version)
    : root_(std::make_unique<CLI::App>(description, name)) {
  root_->set_version_flag("--version", version);
  root_->require_subcommand(0, 1);
}

Registry::~Registry() = default;

Command Registry::add(const std::string& name, const std::string& description, Run run) {
  return add(root(), name, description, std::move(run));
}

Command Registry::add(Command parent, const std::string& name, const std::string& description, Run run) {
  CLI::App* app = parent.app_->add_subcommand(name, description);
  auto output = std::make_shared<Output>();
  app->add_flag("--json", output->json, "Print the result as JSON");
  entries_.push_back({app, std::move(output), std::move(run)});
  return Command(*app);
}

Command Registry::add_group(const std::string& name, const std::string& description) {
  CLI::App* app = root_->add_subcommand(name, description);
  app->require_subcommand(1);
  return Command(*app);
}

std::optional<int> Registry::parse(int argc, char** argv) {
  try {
    root_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return report_parse_error(*root_, error);
  }
}

int Registry::run_chosen() const {
  const CLI::App* chosen = &deepest_chosen(*root_);
  for (const Entry& entry : entries_) {
    if (entry.app == chosen) return entry.run(*entry.output);
  }
  std::fputs(root_->help().c_str(), stderr);
  return kBadInput;
}

int fail(int exit_code, const std::string& what, const std::string& hint) {
  std::fprintf(stderr, "kvbm: error: %s\n", what.c_str());
  if (!hint.empty()) std::fprintf(stderr, "  hint: %s\n", hint.c_str());
  return exit_code;
}

int fail(const Status& status, const std::string& hint) {
  const bool caller_bug = status.code() <= Code::invalid_argument && status.code() > Code::no_room;
  return fail(caller_bug ? kBadInput : kFailed, status.message(), hint);
}

}  // namespace kvbm::command
