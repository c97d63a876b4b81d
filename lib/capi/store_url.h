// URLs of stores: scheme://[user[:password]@]authority/path?name=value&name=value, and plugin:/path/of.so?name=value.
//
// Everything but the scheme and the options' names may have bytes written as %41. Characters that a URL needs for
// itself have to be written so: '@', '#' and a space anywhere, '/' and '?' in a password. An '@' behind the authority
// is refused for that reason: it is the end of a password that has a '/' in it. A '+' is a plus.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
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

// bad_config, in one sentence with the remedy, which has nothing of the URL but names of options and a scheme that is
// one: the rest may be a secret.
Result<StoreUrl> parse_store_url(std::string_view text);

// The URL without its password and without the values of options whose names say that they are secret (password,
// secret, token, or a name that ends with key): *** stands there. Parsing it gives the rest as it was.
std::string print_store_url(const StoreUrl& url);

}  // namespace kvbm::capi
