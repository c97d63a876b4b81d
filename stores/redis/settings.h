// Settings from a URL and the environment, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvbm_plugin.h"

namespace kvbm_redis {

struct Address {
  std::string host;
  uint16_t port = 0;

  [[nodiscard]] std::string text() const;
  bool operator==(const Address&) const = default;
};
// Reads "host:port" or "[::1]:port". The default port is 6379.
std::optional<Address> read_address(const std::string& text);

enum class Cluster : uint8_t { automatic, on, off };
enum class Verify : uint8_t { on, authority_only, off };

struct Settings {
  std::vector<Address> addresses;
  unsigned db = 0;
  std::string user;
  std::string password;
  std::string prefix = "kvbm";
  unsigned connections = 4;
  uint64_t part_bytes = 8 << 20;
  Cluster cluster = Cluster::automatic;
  bool is_tls = false;
  Verify verify = Verify::on;
  std::string ca_file;
  std::string cert_file;
  std::string key_file;

  // Returns the URL without secrets.
  [[nodiscard]] std::string description() const;
};

inline constexpr size_t kOptionCount = 8;
extern const kvbm_store_option_help_t kOptions[kOptionCount];

// Returns nothing, and one sentence in `message`, if something is wrong.
std::optional<Settings> read_settings(const kvbm_store_config_t& config, std::string* message);

// Returns whether an object or listing may have this name: [a-z0-9-.] in parts between '/', none of them empty or
// beginning with '.'.
bool is_name(std::string_view text);
bool is_prefix(std::string_view text);

}  // namespace kvbm_redis
