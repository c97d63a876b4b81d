#include "base/config/config.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/config/edit_distance.h"

#define TOML_EXCEPTIONS 0
// The parser asserts on some malformed keys and then reports them as errors; no assertion may abort the host.
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

namespace kvbm {

namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};
constexpr Unit kByteUnits[] = {
    {"", 1},      {"B", 1},     {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30},  {"TiB", 1ULL << 40},
    {"kB", 1000}, {"KB", 1000}, {"MB", 1000000},     {"GB", 1000000000},  {"TB", 1000000000000}};
constexpr Unit kTimeUnits[] = {{"ns", 1},         {"us", 1000},       {"ms", 1000000},
                               {"s", 1000000000}, {"m", 60000000000}, {"h", 3600000000000}};

Result<uint64_t> parse_with_unit(std::string_view text, std::span<const Unit> units, const char* allowed) {
  const auto refuse = [&](const char* why) {
    return Status(Code::bad_config, why, "\"" + std::string(text) + "\"; " + allowed);
  };
  size_t i = 0;
  uint64_t value = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
        __builtin_add_overflow(value, static_cast<uint64_t>(text[i] - '0'), &value)) {
      return refuse("too large");
    }
  }
  if (i == 0) return refuse("not a whole number with a unit");
  while (i < text.size() && text[i] == ' ') ++i;
  for (const Unit& unit : units) {
    if (text.substr(i) != unit.name) continue;
    if (__builtin_mul_overflow(value, unit.factor, &value)) return refuse("too large");
    return value;
  }
  return refuse("unknown unit");
}

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& name : names) out.append(out.empty() ? "" : ", ").append(name);
  return out;
}

std::string environment_name(const std::string& option) {
  std::string out = "KVBM_";
  for (char c : option) out += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

// `list`: "tier[]." for an option in a [[tier]].
Status unknown(const std::string& key, const std::string& origin, const std::vector<std::string>& known,
               const std::string& list = "") {
  std::string detail = list + key + " (" + origin + ")";
  if (std::any_of(known.begin(), known.end(), [&](const std::string& name) { return name.rfind(key + ".", 0) == 0; })) {
    return Status(Code::bad_config, "invalid value", detail + ": a table, written as [" + key + "]");
  }
  const auto nearest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return edit_distance(key, a) < edit_distance(key, b);
  });
  if (nearest != known.end()) detail.append("; did you mean ").append(list).append(*nearest).append("?");
  return Status(Code::bad_config, "unknown option", std::move(detail));
}

const OptionRow* find_row(std::span<const OptionRow> schema, const std::string& name) {
  for (const OptionRow& row : schema) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

Result<uint64_t> parse_number(const OptionRow& row, std::string_view text) {
  constexpr Unit kNone[] = {{"", 1}};
  switch (row.type) {
    case OptionType::bytes:
      return parse_bytes(text);
    case OptionType::duration:
      return parse_duration(text);
    case OptionType::boolean:
      if (text == "true" || text == "1" || text == "on") return uint64_t{1};
      if (text == "false" || text == "0" || text == "off") return uint64_t{0};
      return Status(Code::bad_config, "not true or false", "\"" + std::string(text) + "\"");
    default:
      return parse_with_unit(text, kNone, "allowed is a whole number");
  }
}

Status put(const OptionRow& row, std::string_view text, const std::string& origin, OptionSet& set,
           const std::string& list = "") {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::bad_config, "invalid value", list + row.name + " (" + origin + "): " + why);
  };
  OptionValue value;
  value.origin = origin;
  if (row.type == OptionType::table_list) return refuse("a list of tables, given in the file as [[" + row.name + "]]");
  if (row.type == OptionType::string || row.type == OptionType::choice) {
    value.text = text;
    if (row.type == OptionType::choice &&
        std::find(row.choices.begin(), row.choices.end(), text) == row.choices.end()) {
      return refuse("\"" + value.text + "\" is not one of " + list_of(row.choices));
    }
  } else {
    auto number = parse_number(row, text);
    if (!number.ok()) return refuse(number.status().message());
    value.number = number.value();
    if (value.number < row.min || value.number > row.max) {
      return refuse("\"" + std::string(text) + "\" is not between " + std::to_string(row.min) + " and " +
                    std::to_string(row.max));
    }
  }
  set.values[row.name] = std::move(value);
  return {};
}

Status put_defaults(std::span<const OptionRow> schema, OptionSet& set) {
  for (const OptionRow& row : schema) {
    if (row.type == OptionType::table_list) {
      set.lists[row.name];
    } else if (Status s = put(row, row.fallback, "default", set); !s.ok()) {
      return s;
    }
  }
  return {};
}

std::vector<std::string> names_of(std::span<const OptionRow> schema) {
  std::vector<std::string> out;
  for (const OptionRow& row : schema) out.push_back(row.name);
  return out;
}

std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* s = node.as_string()) return s->get();
  if (const auto* i = node.as_integer()) return std::to_string(i->get());
  if (const auto* b = node.as_boolean()) return b->get() ? "true" : "false";
  return std::nullopt;
}

Status put_table(const toml::table& table, const std::string& prefix, const std::string& file,
                 std::span<const OptionRow> schema, OptionSet& set, const std::string& list = "");

Status put_list(const OptionRow& row, const toml::node& node, const std::string& origin, const std::string& file,
                OptionSet& set) {
  const auto* array = node.as_array();
  for (size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const toml::table* table = array->get(i)->as_table();
    if (table == nullptr) array = nullptr;
    if (table == nullptr) break;
    OptionSet entry;
    if (Status s = put_defaults(row.entry, entry); !s.ok()) return s;
    if (Status s = put_table(*table, "", file, row.entry, entry, row.name + "[]."); !s.ok()) return s;
    set.lists[row.name].push_back(std::move(entry));
  }
  if (array != nullptr) return {};
  return Status(Code::bad_config, "invalid value", row.name + " (" + origin + "): write it as [[" + row.name + "]]");
}

Status put_table(const toml::table& table, const std::string& prefix, const std::string& file,
                 std::span<const OptionRow> schema, OptionSet& set, const std::string& list) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const std::string origin = "file " + file + ":" + std::to_string(node.source().begin.line);
    const OptionRow* row = find_row(schema, name);
    Status s;
    if (row == nullptr && node.is_table()) {
      s = put_table(*node.as_table(), name + ".", file, schema, set, list);
    } else if (row == nullptr) {
      s = unknown(name, origin, names_of(schema), list);
    } else if (row->type == OptionType::table_list) {
      s = put_list(*row, node, origin, file, set);
    } else if (const auto text = scalar_text(node)) {
      s = put(*row, *text, origin, set, list);
    } else {
      std::string what = list + name;
      what.append(" (").append(origin).append("): a ");
      what.append(node.is_floating_point() ? "whole number" : "single value").append(" is needed");
      s = Status(Code::bad_config, "invalid value", std::move(what));
    }
    if (!s.ok()) return s;
  }
  return {};
}

Status put_file(const ConfigSources& sources, std::span<const OptionRow> schema, OptionSet& set) {
  const toml::parse_result parsed = toml::parse(sources.file_text, std::string_view(sources.file_name));
  if (parsed) return put_table(parsed.table(), "", sources.file_name, schema, set);
  const auto& error = parsed.error();
  return Status(
      Code::bad_config, "the file is not valid TOML",
      sources.file_name + ":" + std::to_string(error.source().begin.line) + ": " + std::string(error.description()));
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Removes the part of `text` before its first '_' and returns it.
std::string_view take_word(std::string_view& text) {
  const size_t end = text.find('_');
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return word;
}

// Checks the name after `<service>_PORT_`: 7000_TCP, 7000_TCP_ADDR, 7000_TCP_PORT, 7000_TCP_PROTO.
bool is_service_port(std::string_view rest) {
  if (!is_number(take_word(rest))) return false;
  const std::string_view protocol = take_word(rest);
  if (protocol != "TCP" && protocol != "UDP" && protocol != "SCTP") return false;
  return rest.empty() || rest == "ADDR" || rest == "PORT" || rest == "PROTO";
}

// True for variables of a service, as Kubernetes (and Docker's links) set them in every container beside it. A
// service's name has letters, digits and '-', which becomes '_': kvbm and kvbm-node give KVBM_PORT and KVBM_NODE_PORT.
// A plain ..._PORT must also have an address as its value: KVBM_NODE_PORT=7000 is more likely a misspelt option.
bool tells_of_service(const NamedText& variable) {
  const std::string_view name = variable.name;
  const auto ends_with = [&](std::string_view end) { return name.size() > end.size() && name.ends_with(end); };
  if (name.ends_with('_')) return false;
  if (ends_with("_SERVICE_HOST") || ends_with("_SERVICE_PORT")) return true;
  if (const size_t at = name.find("_SERVICE_PORT_"); at != std::string_view::npos) {
    return at + std::string_view("_SERVICE_PORT_").size() < name.size();  // the name of a port
  }
  if (ends_with("_PORT") && variable.text.find("://") != std::string::npos) return true;
  for (size_t at = name.find("_PORT_"); at != std::string_view::npos; at = name.find("_PORT_", at + 1)) {
    if (is_service_port(name.substr(at + std::string_view("_PORT_").size()))) return true;
  }
  return false;
}

Status put_environment(const ConfigSources& sources, std::span<const OptionRow> schema, OptionSet& set) {
  std::vector<std::string> known;
  for (const OptionRow& row : schema) known.push_back(environment_name(row.name));
  for (const NamedText& variable : sources.environment) {
    if (variable.name.rfind("KVBM_", 0) != 0) continue;
    const auto& ignored = sources.ignored_environment;
    if (std::find(ignored.begin(), ignored.end(), variable.name) != ignored.end()) continue;
    const auto at = std::find(known.begin(), known.end(), variable.name);
    if (at == known.end() && tells_of_service(variable)) continue;
    if (at == known.end()) return unknown(variable.name, "environment", known);
    const OptionRow& row = schema[static_cast<size_t>(at - known.begin())];
    if (Status s = put(row, variable.text, "environment " + variable.name, set); !s.ok()) return s;
  }
  return {};
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  constexpr char kHex[] = "0123456789abcdef";
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || u == 0x7f) {
      out.append("\\u00") += kHex[u >> 4];
      out += kHex[u & 15];
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string written(const OptionRow& row, const OptionValue& value) {
  switch (row.type) {
    case OptionType::bytes:
    case OptionType::duration: {
      const std::span<const Unit> units = row.type == OptionType::bytes
                                              ? std::span<const Unit>(kByteUnits).subspan(1, 5)
                                              : std::span<const Unit>(kTimeUnits);
      const Unit* best = &units[0];
      for (const Unit& u : units) best = value.number != 0 && value.number % u.factor == 0 ? &u : best;
      return quoted(std::to_string(value.number / best->factor).append(best->name));
    }
    case OptionType::count:
      return std::to_string(value.number);
    case OptionType::boolean:
      return value.number != 0 ? "true" : "false";
    default:
      return quoted(value.text);
  }
}

void document_rows(std::span<const OptionRow> schema, const std::string& prefix, std::string& out) {
  constexpr const char* kTypes[] = {"bytes", "count", "duration", "boolean", "string", "choice", "list of tables"};
  for (const OptionRow& row : schema) {
    std::string type = kTypes[static_cast<size_t>(row.type)];
    if (row.type == OptionType::choice) type = list_of(row.choices);
    out.append("| `").append(prefix).append(row.name).append("` | ").append(type).append(" | ");
    out.append(row.fallback.empty() ? "" : "`" + row.fallback + "`").append(" | ").append(row.doc).append(" |\n");
    document_rows(row.entry, prefix + row.name + "[].", out);
  }
}

}  // namespace

Result<uint64_t> parse_bytes(std::string_view text) {
  return parse_with_unit(text, kByteUnits,
                         "allowed is a whole number of bytes or with KiB, MiB, GiB, TiB, kB, MB, GB or TB");
}

Result<uint64_t> parse_duration(std::string_view text) {
  return parse_with_unit(text, kTimeUnits, "allowed is a whole number with ns, us, ms, s, m or h");
}

Result<OptionSet> resolve_config(std::span<const OptionRow> schema, const ConfigSources& sources) {
  OptionSet set;
  if (Status s = put_defaults(schema, set); !s.ok()) return s;
  if (!sources.file_name.empty()) {
    if (Status s = put_file(sources, schema, set); !s.ok()) return s;
  }
  if (Status s = put_environment(sources, schema, set); !s.ok()) return s;
  for (const NamedText& option : sources.options) {
    const OptionRow* row = find_row(schema, option.name);
    if (row == nullptr) return unknown(option.name, "options", names_of(schema));
    if (Status s = put(*row, option.text, "options", set); !s.ok()) return s;
  }
  return set;
}

std::string print_config(std::span<const OptionRow> schema, const OptionSet& set) {
  std::string out;
  for (const OptionRow& row : schema) {
    const auto value = set.values.find(row.name);
    if (value == set.values.end()) continue;
    out.append(row.name).append(" = ").append(written(row, value->second));
    out.append("  # ").append(value->second.origin).append("\n");
  }
  for (const OptionRow& row : schema) {
    const auto list = set.lists.find(row.name);
    if (list == set.lists.end()) continue;
    for (const OptionSet& entry : list->second) {
      out.append("\n[[").append(row.name).append("]]\n").append(print_config(row.entry, entry));
    }
  }
  return out;
}

std::string document_config(std::span<const OptionRow> schema) {
  std::string out = "| Option | Type | Default | Meaning |\n|---|---|---|---|\n";
  document_rows(schema, "", out);
  return out;
}

}  // namespace kvbm
