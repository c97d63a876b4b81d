#include "command/config.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/config/config.h"
#include "base/process/machine_limits.h"
#include "kvbm.h"
#include "terminal/json_text.h"

namespace kvbm::command {

namespace {

struct ConfigOptions {
  std::string file;
  std::vector<std::string> settings;  // key=value
  bool reference = false;
};

// Reads a text by the two-phase convention of kvbm.h.
template <class Call>
std::string text_of(Call&& call) {
  size_t needed = 0;
  if (call(nullptr, size_t{0}, &needed) != KVBM_OK) return {};
  std::string text(needed + 1, '\0');
  call(text.data(), text.size(), &needed);
  text.resize(needed);
  return text;
}

// Converts the lines `key = value  # origin` and `[[list]]` of kvbm_context_config.
nlohmann::ordered_json json_of(const std::string& text) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::istringstream lines(text);
  std::string line;
  std::string prefix;
  std::string table;
  size_t index = 0;
  while (std::getline(lines, line)) {
    if (line.rfind("[[", 0) == 0) {
      const std::string name = line.substr(2, line.size() - 4);
      index = name == table ? index + 1 : 0;
      table = name;
      prefix = name + "[" + std::to_string(index) + "].";
      continue;
    }
    const size_t equals = line.find(" = ");
    const size_t comment = line.rfind("  # ");
    if (equals == std::string::npos || comment == std::string::npos) continue;
    const std::string written = line.substr(equals + 3, comment - equals - 3);
    // Values are written as TOML. Its numbers, booleans and quoted strings are JSON too.
    nlohmann::ordered_json value = nlohmann::ordered_json::parse(written, nullptr, false);
    if (value.is_discarded()) value = written;
    list.push_back({{"key", prefix + line.substr(0, equals)}, {"value", value}, {"origin", line.substr(comment + 4)}});
  }
  return list;
}

// Checks sizes that are possible alone, but not together. A manager with them would be refused.
int check_host(const nlohmann::ordered_json& list) {
  std::string said[2];
  uint64_t bytes[2] = {0, 0};
  const char* const keys[] = {"host.capacity", "host.block_bytes"};
  for (const auto& item : list) {
    for (size_t i = 0; i < 2; ++i) {
      if (item["key"] != keys[i] || !item["value"].is_string()) continue;
      const auto parsed = parse_bytes(item["value"].get<std::string>());
      if (!parsed.ok()) continue;
      bytes[i] = parsed.value();
      said[i] = std::string(keys[i]) + " = " + item["value"].dump();
    }
  }
  // A block has a head, and an arena has one page of its own.
  if (bytes[0] > bytes[1] || bytes[1] == 0) return kDone;
  return fail(kBadInput, said[0] + " is smaller than one block: " + said[1] + ", and its head beside it",
              "raise host.capacity or lower host.block_bytes");
}

// Prints what a manager with this configuration would warn about.
void warn_of_host(const nlohmann::ordered_json& list) {
  for (const auto& item : list) {
    if (item["key"] != "host.capacity" || !item["value"].is_string()) continue;
    const auto bytes = parse_bytes(item["value"].get<std::string>());
    if (!bytes.ok()) continue;
    const Status fits = check_host_capacity(bytes.value(), read_machine_limits());
    if (!fits.ok()) std::fprintf(stderr, "kvbm: warning: %s\n", fits.message().c_str());
  }
}

int print_reference(const Output& output) {
  const std::string text =
      text_of([](char* out, size_t capacity, size_t* needed) { return kvbm_config_reference(out, capacity, needed); });
  if (output.json) {
    std::printf("%s\n", nlohmann::ordered_json{{"markdown", text}}.dump(2).c_str());
  } else {
    std::fputs(text.c_str(), stdout);
  }
  return kDone;
}

int run(const ConfigOptions& options, const Output& output) {
  if (options.reference) return print_reference(output);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& setting : options.settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      return fail(kBadInput, "--set " + setting + " is not KEY=VALUE", "write --set host.capacity=8GiB");
    }
    pairs.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  std::vector<kvbm_setting_t> settings;
  for (const auto& [key, value] : pairs) settings.push_back({key.c_str(), value.c_str()});
  kvbm_context_options_t context_options;
  kvbm_context_options_init(&context_options, sizeof context_options);
  context_options.config_file = options.file.empty() ? nullptr : options.file.c_str();
  context_options.settings = settings.data();
  context_options.n_settings = settings.size();
  kvbm_context_t* context = nullptr;
  kvbm_error_t error{};
  const kvbm_status_t status = kvbm_context_create(&context_options, &context, &error);
  if (status != KVBM_OK) {
    return fail(status == KVBM_ERR_CONFIG || status == KVBM_ERR_INVALID ? kBadInput : kFailed, error.message,
                "`kvbm config --reference` lists every option");
  }
  const std::string text = text_of([context](char* out, size_t capacity, size_t* needed) {
    return kvbm_context_config(context, out, capacity, needed);
  });
  kvbm_context_release(context);
  const auto list = json_of(text);
  const int possible = check_host(list);
  if (possible != kDone) return possible;
  warn_of_host(list);
  std::fputs(output.json ? (terminal::json_text(list) + "\n").c_str() : text.c_str(), stdout);
  return kDone;
}

}  // namespace

void add_config(Registry& registry) {
  auto options = std::make_shared<ConfigOptions>();
  Command app = registry.add("config", "The configuration in effect, and where each value comes from",
                             [options](const Output& output) { return run(*options, output); });
  app.add_option("--file", options->file, "TOML file; without it the one that $KVBM_CONFIG names").type_name("FILE");
  app.add_option("--set", options->settings, "A value that wins over file and environment; can be repeated")
      .type_name("KEY=VALUE")
      .repeatable();
  app.add_flag("--reference", options->reference, "Every option with type, default and meaning, as Markdown");
  app.footer(
      "Later wins: defaults, the file, KVBM_* of the environment (KVBM_HOST_CAPACITY), --set.\n"
      "Examples:\n"
      "  kvbm config --file kvbm.toml\n"
      "  kvbm config --set host.capacity=8GiB --json\n"
      "  kvbm config --reference");
}

}  // namespace kvbm::command
