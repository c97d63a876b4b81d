#include "command/registry.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <utility>

namespace kvbm::command {

namespace {

// Edits (insert, delete, replace) from one word to the other.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

const CLI::App* deepest_chosen(const CLI::App& root) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : path_of(*app.get_parent()) + " " + app.get_name();
}

// The visible name nearest to `word` among the subcommands and options of `app`; "" when none is near.
std::string nearest_name(const CLI::App& app, const std::string& word) {
  std::string best;
  size_t best_distance = 3;
  const auto consider = [&](const std::string& candidate) {
    const size_t d = distance(word, candidate);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  };
  for (const CLI::App* sub : commands_below(app)) consider(sub->get_name());
  for (const CLI::Option* option : options_shown(app)) {
    for (const std::string& name : option->get_lnames()) consider("--" + name);
  }
  return best;
}

}  // namespace

CLI::App& Registry::add(const std::string& name, const std::string& description, Run run) {
  return add(root_, name, description, std::move(run));
}

CLI::App& Registry::add(CLI::App& parent, const std::string& name, const std::string& description, Run run) {
  CLI::App* app = parent.add_subcommand(name, description);
  auto output = std::make_shared<Output>();
  app->add_flag("--json", output->json, "Print the result as JSON");
  entries_.push_back({app, std::move(output), std::move(run)});
  return *app;
}

CLI::App& Registry::add_group(const std::string& name, const std::string& description) {
  CLI::App* app = root_.add_subcommand(name, description);
  app->require_subcommand(1);
  return *app;
}

int Registry::run_chosen() const {
  const CLI::App* chosen = deepest_chosen(root_);
  for (const Entry& entry : entries_) {
    if (entry.app == chosen) return entry.run(*entry.output);
  }
  std::fputs(root_.help().c_str(), stderr);
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

std::vector<const CLI::App*> commands_below(const CLI::App& app) {
  return app.get_subcommands(
      [](const CLI::App* sub) { return !sub->get_name().empty() && !sub->get_group().empty(); });
}

std::vector<const CLI::Option*> options_shown(const CLI::App& app) {
  std::vector<const CLI::Option*> options =
      app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
  for (const CLI::App* group : app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); })) {
    for (const CLI::Option* option : options_shown(*group)) {
      if (option != group->get_help_ptr()) options.push_back(option);
    }
  }
  return options;
}

CLI::Validator within(double least, double most) {
  std::ostringstream range;
  range << "in [" << least << " - " << most << "]";
  return {[least, most, range = range.str()](const std::string& text) {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            const bool good = !text.empty() && *end == '\0' && value >= least && value <= most;
            return good ? std::string() : text + " is no number " + range;
          },
          range.str()};
}

CLI::Validator not_negative() {
  return {[](const std::string& text) -> std::string {
            return text.rfind('-', 0) == 0 ? text + " is below zero" : std::string();
          },
          ""};
}

int report_parse_error(const CLI::App& root, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {  // --help or --version
    return root.exit(error);
  }
  const CLI::App* app = deepest_chosen(root);
  std::string hint = "run `" + path_of(*app) + " --help` to see what it takes";
  const std::vector<std::string> extras = root.remaining(true);
  if (!extras.empty()) {
    const std::string near = nearest_name(*app, extras.front());
    if (!near.empty()) hint = "did you mean `" + near + "`? `" + path_of(*app) + " --help` lists all";
    return fail(kBadInput, "`" + path_of(*app) + "` does not take `" + extras.front() + "`", hint);
  }
  return fail(kBadInput, error.what(), hint);
}

}  // namespace kvbm::command
