#include "settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace kvbm_redis {
namespace {

constexpr uint64_t kLeastPart = 64 << 10;
constexpr uint64_t kMostPart = 512 << 20;  // limit of a value in Redis (proto-max-bulk-len)
constexpr size_t kMostAddresses = 16;

template <class T>
bool read_number(std::string_view text, T* out) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), *out);
  return !text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size();
}

bool read_size(std::string_view text, uint64_t* out) {
  uint64_t unit = 1;
  for (const auto& [name, bytes] : {std::pair<std::string_view, uint64_t>{"KiB", 1 << 10}, {"MiB", 1 << 20}}) {
    if (text.ends_with(name)) {
      text.remove_suffix(name.size());
      unit = bytes;
      break;
    }
  }
  if (!read_number(text, out) || *out > kMostPart) return false;
  *out *= unit;
  return *out >= kLeastPart && *out <= kMostPart;
}

// Rejects '{', because a cluster hashes only the part of a key in braces.
bool is_key_prefix(std::string_view text) {
  if (text.empty() || text.size() > 64) return false;
  for (const char c : text) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!is_letter && c != '-' && c != '_' && c != '.' && c != ':' && c != '/') return false;
  }
  return true;
}

std::string read_addresses(std::string_view text, Settings* out) {
  while (true) {
    const size_t comma = text.find(',');
    const auto address = read_address(std::string(text.substr(0, comma)));
    if (!address) return "a Redis store needs host:port of its server: redis://host:6379/0";
    // Each address is one server (Store::nodes_).
    const bool is_new = std::find(out->addresses.begin(), out->addresses.end(), *address) == out->addresses.end();
    if (is_new) out->addresses.push_back(*address);
    if (comma == std::string_view::npos) return {};
    if (out->addresses.size() == kMostAddresses) return "a Redis store takes up to 16 addresses";
    text.remove_prefix(comma + 1);
  }
}

std::string read_option(std::string_view name, const std::string& value, Settings* out) {
  if (value.empty()) return "option '" + std::string(name) + "' of the Redis store is empty";
  if (name == "connections") {
    if (read_number(value, &out->connections) && out->connections >= 1 && out->connections <= 64) return {};
    return "connections of the Redis store is 1 to 64, not " + value;
  }
  if (name == "part") {
    if (read_size(value, &out->part_bytes)) return {};
    return "part of the Redis store is 64KiB to 512MiB, not " + value;
  }
  if (name == "prefix") {
    out->prefix = value;
    if (is_key_prefix(value)) return {};
    return "prefix of the Redis store is up to 64 letters, digits and any of -_.:/";
  }
  if (name == "cluster") {
    out->cluster = value == "on" ? Cluster::on : value == "off" ? Cluster::off : Cluster::automatic;
    if (value == "on" || value == "off" || value == "auto") return {};
    return "cluster of the Redis store is auto, on or off, not " + value;
  }
  if (name != "verify" && name != "ca" && name != "cert" && name != "key") {
    return "a Redis store has no option '" + std::string(name) + "'";
  }
  if (!out->is_tls) return "option '" + std::string(name) + "' is for TLS: write rediss:// instead of redis://";
  if (name == "verify") {
    out->verify = value == "off" ? Verify::off : value == "ca" ? Verify::authority_only : Verify::on;
    if (value == "on" || value == "off" || value == "ca") return {};
    return "verify of the Redis store is on, ca or off, not " + value;
  }
  (name == "ca" ? out->ca_file : name == "cert" ? out->cert_file : out->key_file) = value;
  return {};
}

}  // namespace

const kvbm_store_option_help_t kOptions[kOptionCount] = {
    {"prefix", "what the keys begin with, followed by ':'; letters, digits and -_.:/ (default kvbm)"},
    {"connections", "connections to each server, 1 to 64 (default 4)"},
    {"part", "larger objects are kept in parts of so many bytes, 64KiB to 512MiB (default 8MiB)"},
    {"cluster", "auto (default), on to refuse what is no cluster, or off to refuse a cluster"},
    {"ca", "rediss: file of certificates (PEM) that sign the server's; default: the system's"},
    {"cert", "rediss: file of the certificate (PEM) that is shown to the server; default: none"},
    {"key", "rediss: file of that certificate's private key (PEM)"},
    {"verify", "rediss: on (default), ca to take certificates for other hosts, or off to trust any"},
};

std::string Address::text() const {
  const std::string number = std::to_string(port);
  return host.find(':') == std::string::npos ? host + ":" + number : "[" + host + "]:" + number;
}

std::optional<Address> read_address(const std::string& text) {
  Address address;
  address.port = 6379;
  size_t colon = text.rfind(':');
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string::npos) return std::nullopt;
    address.host = text.substr(1, end - 1);
    colon = end + 1 == text.size() ? std::string::npos : end + 1;
    if (colon != std::string::npos && text[colon] != ':') return std::nullopt;
  } else {
    address.host = text.substr(0, colon);
    if (address.host.find(':') != std::string::npos) return std::nullopt;
  }
  if (address.host.empty() || address.host.size() > 253) return std::nullopt;
  for (const char c : address.host) {
    if (c <= ' ' || c > '~' || c == '/' || c == '[' || c == ']') return std::nullopt;
  }
  if (colon != std::string::npos &&
      (!read_number(std::string_view(text).substr(colon + 1), &address.port) || address.port == 0)) {
    return std::nullopt;
  }
  return address;
}

std::string Settings::description() const {
  std::string text = is_tls ? "rediss://" : "redis://";
  for (const Address& address : addresses) text += (&address == &addresses.front() ? "" : ",") + address.text();
  return text + "/" + std::to_string(db) + "?prefix=" + prefix;
}

std::optional<Settings> read_settings(const kvbm_store_config_t& config, std::string* message) {
  Settings settings;
  settings.is_tls = std::string_view(config.scheme) == "rediss";
  const auto refuse = [&](const std::string& sentence) {
    *message = sentence;
    return std::nullopt;
  };
  if (std::string wrong = read_addresses(config.authority, &settings); !wrong.empty()) return refuse(wrong);
  std::string_view path = config.path;
  if (path.starts_with('/')) path.remove_prefix(1);
  if (!path.empty() && (!read_number(path, &settings.db) || settings.db > 1'000'000)) {
    return refuse(
        "the path of a Redis store is the number of a database, as in redis://host:6379/0; give names with prefix=");
  }
  for (size_t i = 0; i < config.n_options; ++i) {
    if (std::string wrong = read_option(config.options[i].name, config.options[i].value, &settings); !wrong.empty()) {
      return refuse(wrong);
    }
  }
  if (settings.cluster == Cluster::on && settings.db != 0) {
    return refuse("a Redis cluster has database 0 only: write redis://host:port/0");
  }
  if (settings.cert_file.empty() != settings.key_file.empty())
    return refuse("give both cert and key of the Redis store, or neither");
  settings.user = config.user;
  settings.password = config.password;
  // The variable is read once, because a program may change its environment in another thread.
  const char* password = std::getenv("KVBM_REDIS_PASSWORD");
  if (settings.password.empty() && password != nullptr) settings.password = password;
  if (!settings.user.empty() && settings.password.empty()) {
    return refuse("the Redis store has a user and no password: give it in KVBM_REDIS_PASSWORD or the URL");
  }
  return settings;
}

bool is_prefix(std::string_view text) {
  if (text.size() > KVBM_STORE_NAME_BYTES) return false;
  char before = '/';
  for (const char c : text) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    if (!is_letter && !((c == '.' || c == '/') && before != '/')) return false;
    before = c;
  }
  return true;
}

bool is_name(std::string_view text) { return !text.empty() && text.back() != '/' && is_prefix(text); }

}  // namespace kvbm_redis
