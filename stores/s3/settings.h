// What a URL and the environment say, checked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kvbm_plugin.h"

namespace kvbm_s3 {

// The environment variables that are looked at, read once: a program may change its environment in another thread.
using Environment = std::map<std::string, std::string>;
Environment read_environment();
// "" where it is not set.
const std::string& get(const Environment& environment, const std::string& name);

// Values of a profile in ~/.aws/credentials and ~/.aws/config, or the files that the environment names; the first wins.
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
  std::string access_key;  // of the URL
  std::string secret;
  std::string profile;  // "" where the URL has none
  std::string role;
  int64_t clock_offset_s = 0;  // what a test adds to the clock

  [[nodiscard]] std::string endpoint() const { return (is_https ? "https://" : "http://") + host + base_path; }
  // What is asked for as Host, and the encoded path of an object; an empty key is the bucket.
  [[nodiscard]] std::string request_host() const { return is_host_style ? bucket + "." + host : host; }
  [[nodiscard]] std::string request_path(const std::string& key) const;
  // The URL without secrets.
  [[nodiscard]] std::string description() const;
};

inline constexpr size_t kOptionCount = 9;
extern const kvbm_store_option_help_t kOptions[kOptionCount];

// Nothing, and one sentence in `message`, where something is wrong.
std::optional<Settings> read_settings(const kvbm_store_config_t& config, const Environment& environment,
                                      std::string* message);

}  // namespace kvbm_s3
