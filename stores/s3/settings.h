// Settings from a URL and the environment, checked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kvbm_plugin.h"

namespace kvbm_s3 {

// The environment variables in use, read once, because a program may change its environment in another thread.
using Environment = std::map<std::string, std::string>;
Environment read_environment();
// Returns "" for a variable that is not set.
const std::string& get(const Environment& environment, const std::string& name);

// Values of a profile in ~/.aws/credentials and ~/.aws/config, or in the files that the environment names. The first
// value wins.
using Profile = std::map<std::string, std::string>;
std::optional<Profile> read_profile(const Environment& environment, const std::string& name);

struct Settings {
  std::string bucket;
  std::string prefix;  // "" or ending with '/'
  bool is_https = true;
  std::string host;       // of the endpoint, with its port if that is not the scheme's own
  std::string base_path;  // of the endpoint: "" or "/..."
  std::string region;
  bool is_host_style = false;
  bool verifies = true;
  std::string ca_file;
  bool signs_payload = true;
  unsigned connections = 32;
  std::string access_key;  // from the URL
  std::string secret;
  std::string profile;  // "" if the URL has none
  std::string role;
  int64_t clock_offset_s = 0;  // offset that a test adds to the clock

  [[nodiscard]] std::string endpoint() const { return (is_https ? "https://" : "http://") + host + base_path; }
  // The Host header, and the encoded path of an object. An empty key means the bucket.
  [[nodiscard]] std::string request_host() const { return is_host_style ? bucket + "." + host : host; }
  [[nodiscard]] std::string request_path(const std::string& key) const;
  // Returns the URL without secrets.
  [[nodiscard]] std::string description() const;
};

inline constexpr size_t kOptionCount = 9;
extern const kvbm_store_option_help_t kOptions[kOptionCount];

// Returns nothing, and one sentence in `message`, if something is wrong.
std::optional<Settings> read_settings(const kvbm_store_config_t& config, const Environment& environment,
                                      std::string* message);

}  // namespace kvbm_s3
