#include "settings.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

namespace kvbm_mooncake {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr size_t kMostText = 256;

template <class T>
bool read_number(std::string_view text, T& out) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size();
}

// Reads a size of whole MiB, from `least` to `most` of them.
bool read_size(std::string_view text, uint64_t least, uint64_t most, uint64_t& out) {
  uint64_t unit = 0;
  for (const auto& [name, mebibytes] : {std::pair<std::string_view, uint64_t>{"MiB", 1}, {"GiB", 1 << 10}}) {
    if (!text.ends_with(name)) continue;
    text.remove_suffix(name.size());
    unit = mebibytes;
  }
  uint64_t number = 0;
  if (unit == 0 || !read_number(text, number) || number > most / unit || number * unit < least) return false;
  out = number * unit * kMiB;
  return true;
}

bool is_plain(std::string_view text, std::string_view more) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           more.find(c) != std::string_view::npos;
  });
}

std::string read_option(std::string_view name, const std::string& value, Settings& out) {
  if (value.size() > kMostText) return "option " + std::string(name) + " is longer than 256 bytes";
  if (name == "lend") {
    if (value == "0" || read_size(value, 16, 4 << 20, out.lend_bytes)) return {};
    return "lend is 0 or 16MiB to 4096GiB, not \"" + value + "\"";
  }
  if (name == "memory") {
    if (read_size(value, 16, 16 << 10, out.memory_bytes)) return {};
    return "memory is 16MiB to 16GiB, not \"" + value + "\"";
  }
  if (name == "threads") {
    if (read_number(value, out.threads) && out.threads >= 1 && out.threads <= 64) return {};
    return "threads is a number from 1 to 64, not \"" + value + "\"";
  }
  if (name == "protocol") {
    out.protocol = value;
    if (!value.empty() && is_plain(value, "_")) return {};
    return "protocol is tcp, rdma or another of Mooncake's, not \"" + value + "\"";
  }
  const std::pair<std::string_view, std::string*> texts[] = {{"device", &out.device},
                                                             {"host", &out.host},
                                                             {"log", &out.log},
                                                             {"metadata", &out.metadata},
                                                             {"python", &out.python}};
  for (const auto& [known, place] : texts) {
    if (name != known) continue;
    *place = value;
    if (name == "log" && !value.starts_with('/')) return "log is the whole path of a file, not \"" + value + "\"";
    return value.empty() ? "option " + std::string(name) + " is empty; leave it out" : std::string();
  }
  return "a store of Mooncake has no option " + std::string(name);
}

std::string read_place(const kvbm_store_config_t& config, Settings& out) {
  constexpr const char* kForm = "a store of Mooncake needs host:port of mooncake_master: mooncake://host:50051/prefix";
  if (config.user[0] != '\0' || config.password[0] != '\0') {
    return "Mooncake has no users or passwords; leave them out";
  }
  out.master = config.authority;
  if (out.master.empty() || !is_plain(out.master, "-._:[]")) return kForm;
  const size_t colon = out.master.rfind(':');
  if (colon == std::string::npos || out.master.back() == ']') {
    out.master += ":50051";
  } else {
    uint16_t port = 0;
    if (colon == 0 || !read_number(std::string_view(out.master).substr(colon + 1), port) || port == 0) return kForm;
  }
  std::string_view path = config.path;
  while (path.starts_with('/')) path.remove_prefix(1);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (!path.empty()) out.prefix = path;
  if (out.prefix.size() > 64 || !is_plain(out.prefix, "-_./")) {
    return "the prefix of a store of Mooncake has at most 64 letters, digits and -_./ in it: "
           "mooncake://host:50051/prefix";
  }
  return {};
}

}  // namespace

std::vector<std::string> Settings::arguments() const {
  return {master, prefix, protocol, device, host, metadata, std::to_string(lend_bytes), std::to_string(threads)};
}

std::string read_settings(const kvbm_store_config_t& config, Settings& out) {
  if (std::string wrong = read_place(config, out); !wrong.empty()) return wrong;
  for (size_t i = 0; i < config.n_options; ++i) {
    std::string wrong = read_option(config.options[i].name, config.options[i].value, out);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

const kvbm_store_option_help_t kOptions[] = {
    {"lend", "memory that this process lends to Mooncake's pool, as 4GiB (default 0)"},
    {"protocol", "how bytes travel: tcp (default), rdma or another of Mooncake's"},
    {"device", "network devices of that protocol, with commas between (default: Mooncake chooses)"},
    {"host", "the address that other hosts reach this one by (default: the one the master is reached from)"},
    {"metadata", "where Mooncake's engines find each other (default P2PHANDSHAKE: each other)"},
    {"memory", "memory for bytes on their way, 16MiB to 16GiB (default 64MiB)"},
    {"threads", "operations at a time, 1 to 64 (default 16)"},
    {"python", "the Python that has Mooncake's package (default python3)"},
    {"log", "file that Mooncake's own messages are added to (default: none)"},
};
const size_t kOptionCount = std::size(kOptions);

}  // namespace kvbm_mooncake
