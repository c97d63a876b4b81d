#include "command/plugin.h"

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "capi/plugin/store_module.h"
#include "capi/plugin/store_url.h"
#include "plugin/store_check.h"
#include "terminal/json_text.h"
#include "terminal/safe_text.h"

namespace kvbm::command {

namespace {

constexpr size_t kWidestLine = 400;

struct PluginArguments {
  std::string store;
  std::string folder;
  double grace = 2;
  double timeout = 10;
};

// Returns the URL that loads a file.
std::string url_of_file(const std::string& file) {
  char* real = ::realpath(file.c_str(), nullptr);
  const std::string path = real == nullptr ? file : real;
  std::free(real);
  capi::StoreUrl url;
  url.scheme = capi::kPluginScheme;
  url.path = path;
  return capi::print_store_url(url);
}

bool is_url(const std::string& text) {
  const size_t colon = text.find(':');
  return colon != std::string::npos && colon < text.find('/');
}

void print_finding(const plugin::Finding& finding) {
  std::printf("%-8s%-15s %s\n", plugin::verdict_name(finding.verdict), finding.rule.c_str(),
              terminal::safe_text(finding.seen.empty() || finding.verdict == plugin::Verdict::passed
                                      ? finding.text + (finding.seen.empty() ? "" : " (" + finding.seen + ")")
                                      : finding.seen,
                                  kWidestLine)
                  .c_str());
  if (finding.verdict == plugin::Verdict::failed) std::printf("%-8s%-15s the rule: %s\n", "", "", finding.text.c_str());
  std::fflush(stdout);
}

nlohmann::ordered_json json_of_check(const capi::StoreUrl& url, const char* name, const plugin::Checked& checked,
                                     size_t failures) {
  nlohmann::ordered_json rules = nlohmann::ordered_json::array();
  for (const plugin::Finding& finding : checked.findings) {
    rules.push_back({{"rule", finding.rule},
                     {"text", finding.text},
                     {"verdict", plugin::verdict_name(finding.verdict)},
                     {"seen", finding.seen}});
  }
  return {{"store", capi::print_store_url(url)},
          {"name", name},
          {"description", checked.description},
          {"failed", failures},
          {"rules", rules}};
}

int check_plugin(const PluginArguments& arguments, const Output& output) {
  const bool is_file = !is_url(arguments.store) || std::filesystem::exists(arguments.store);
  auto parsed = capi::parse_store_url(is_file ? url_of_file(arguments.store) : arguments.store);
  if (!parsed.ok()) return fail(kBadInput, parsed.status().message());
  // The URLs live as long as the process, because a store that never finishes may read them at any time.
  static auto* const kept = new std::vector<std::unique_ptr<capi::StoreUrl>>;
  const capi::StoreUrl& url = *kept->emplace_back(std::make_unique<capi::StoreUrl>(std::move(parsed).value()));
  const auto table = capi::load_store_module(url, arguments.folder);
  if (!table.ok()) return fail(kBadInput, table.status().message());
  plugin::CheckLimits limits;
  limits.operations.grace_ns = static_cast<uint64_t>(arguments.grace * 1e9);
  limits.operations.timeout_ns = static_cast<uint64_t>(arguments.timeout * 1e9);
  const auto each = [&](const plugin::Finding& finding) {
    if (!output.json) print_finding(finding);
  };
  const plugin::Checked checked = plugin::check_store(*table.value(), url, limits, each);
  if (checked.findings.empty()) {
    return fail(kBadInput,
                capi::print_store_url(url) + " cannot be opened: " + terminal::safe_text(checked.message, kWidestLine),
                "the check needs a store that answers, and a place in it that may be written");
  }
  size_t failures = 0;
  for (const plugin::Finding& finding : checked.findings)
    failures += finding.verdict == plugin::Verdict::failed ? 1 : 0;
  if (output.json) {
    std::printf("%s\n", terminal::json_text(json_of_check(url, table.value()->name, checked, failures)).c_str());
  } else {
    std::printf("%s: %zu rules, %zu broken (%s)\n", table.value()->name, checked.findings.size(), failures,
                terminal::safe_text(checked.description, kWidestLine).c_str());
  }
  return failures == 0 ? kDone : kFailed;
}

}  // namespace

void add_plugin(Registry& registry) {
  Command group = registry.add_group("plugin", "Check shared libraries that kvbm would load");
  auto arguments = std::make_shared<PluginArguments>();
  Command check = registry.add(group, "check", "Check that a store keeps every rule of kvbm_plugin.h",
                               [arguments](const Output& output) { return check_plugin(*arguments, output); });
  check.add_option("store", arguments->store, "URL of a store, or a library that is one")
      .type_name("FILE_OR_URL")
      .required();
  check
      .add_option("--stores", arguments->folder,
                  "Folder with libkvbm_store_<scheme>.so; else KVBM_STORE_PATH, then beside the command")
      .type_name("DIR");
  check.add_option("--timeout", arguments->timeout, "Seconds that an operation is given")
      .range(0.1, 3600.0)
      .show_default();
  check.add_option("--grace", arguments->grace, "Seconds by which it may be late").range(0.1, 3600.0).show_default();
  check.footer(
      "Examples:\n"
      "  kvbm plugin check file:///mnt/shared/kv?shared=on\n"
      "  kvbm plugin check ./libmy_store.so\n"
      "  kvbm plugin check 'plugin:/opt/libmy_store.so?place=test' --json\n"
      "It writes some MiB beneath a name of its own, kvbm-check-<number>, and removes them. The library runs in this\n"
      "process. Exit code 1: a rule is broken; 2: there is no such store, or it cannot be opened.");
}

}  // namespace kvbm::command
