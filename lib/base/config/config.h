// Typed options from a schema: defaults, then a TOML file, then KVBM_* environment, then explicit
// values; the later wins, and each value knows its origin. Unknown keys are errors that name the
// key, where it stands and the nearest known key. No exception leaves; Thread: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvbm {

enum class OptionType { bytes, count, duration, boolean, string, choice, table_list };

struct OptionRow {
  std::string name;  // dotted, "host.capacity"; inside an entry of a list relative to it
  OptionType type = OptionType::string;
  std::string fallback;  // the default, written as in a file ("256MiB"); unused for lists
  std::string doc;
  uint64_t min = 0;
  uint64_t max = INT64_MAX;
  std::vector<std::string> choices = {};  // choice
  std::vector<OptionRow> entry = {};      // table_list: the schema of one entry
};

struct OptionValue {
  uint64_t number = 0;  // bytes, count, nanoseconds, or 0 and 1
  std::string text;     // string, choice
  std::string origin;   // "default", "file /x.toml:12", "environment KVBM_X", "options"
};

struct OptionSet {
  std::map<std::string, OptionValue> values;            // every scalar row of the schema
  std::map<std::string, std::vector<OptionSet>> lists;  // every table_list row
};

struct NamedText {
  std::string name;
  std::string text;
};

// "4096", "256MiB", "10GB": KiB, MiB, GiB, TiB are powers of 1024, kB, KB, MB, GB, TB of 1000.
Result<uint64_t> parse_bytes(std::string_view text);
// "5s", "250ms", "10us", "100ns", "2m", "1h"; nanoseconds.
Result<uint64_t> parse_duration(std::string_view text);

struct ConfigSources {
  std::string file_name;       // for messages; empty: no file
  std::string_view file_text;  // TOML
  // The whole environment; only KVBM_* names are read. Kubernetes gives every pod variables for the services beside it.
  // Those of a service called kvbm or kvbm-<name> (KVBM_SERVICE_HOST, KVBM_PORT=tcp://..., KVBM_PORT_7000_TCP_ADDR) are
  // skipped, unless an option has that name.
  std::span<const NamedText> environment;
  std::vector<std::string> ignored_environment;  // KVBM_* names with another meaning
  std::span<const NamedText> options;            // explicit values by dotted name
};
// Resolves all options. Lists are read from the file only. Code::bad_config with the key and its origin.
Result<OptionSet> resolve_config(std::span<const OptionRow> schema, const ConfigSources& sources);

// Prints the effective configuration as TOML, each origin as a comment; resolving it gives equal values.
std::string print_config(std::span<const OptionRow> schema, const OptionSet& set);
// Makes a markdown table of the options.
std::string document_config(std::span<const OptionRow> schema);

}  // namespace kvbm
