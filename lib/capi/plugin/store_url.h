// URLs of stores: scheme://[user[:password]@]authority/path?name=value&name=value, and plugin:/path/of.so?name=value.
//
// Everything but the scheme and the options' names may have bytes written as %41. Characters that a URL needs for
// itself have to be written so: '@', '#' and a space anywhere, '/' and '?' in a password. An '@' behind the authority
// is refused for that reason: it is the end of a password that has a '/' in it. A '+' is a plus.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/config/config.h"
#include "base/status.h"

namespace kvbm::capi {

inline constexpr size_t kMostUrlBytes = 4096;
inline constexpr size_t kMostUrlOptions = 64;
inline constexpr size_t kMostSchemeBytes = 24;
inline constexpr std::string_view kPluginScheme = "plugin";

struct StoreUrl {
  std::string scheme;     // "s3"
  std::string authority;  // "bucket" of s3://bucket/prefix; empty in file:///mnt and plugin:/path
  std::string user;
  std::string password;
  std::string path;                // "/prefix", or "" ; of plugin: the file
  std::vector<NamedText> options;  // in order, no name twice
};

// Parses a URL. bad_config: one sentence with the remedy. It contains nothing of the URL except option names and a
// valid scheme: the rest may be a secret.
Result<StoreUrl> parse_store_url(std::string_view text);

// Returns the URL without its password, and with *** for the values of options with secret names (password, secret,
// token, or a name that ends with key). Parsing it gives the rest unchanged.
std::string print_store_url(const StoreUrl& url);

}  // namespace kvbm::capi
