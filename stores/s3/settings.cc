#include "settings.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "sigv4.h"

namespace kvbm_s3 {
namespace {

constexpr const char* kVariables[] = {"HOME",
                                      "AWS_ACCESS_KEY_ID",
                                      "AWS_SECRET_ACCESS_KEY",
                                      "AWS_SESSION_TOKEN",
                                      "AWS_REGION",
                                      "AWS_DEFAULT_REGION",
                                      "AWS_PROFILE",
                                      "AWS_SHARED_CREDENTIALS_FILE",
                                      "AWS_CONFIG_FILE",
                                      "AWS_CA_BUNDLE",
                                      "AWS_ENDPOINT_URL",
                                      "AWS_ENDPOINT_URL_S3",
                                      "AWS_ENDPOINT_URL_STS",
                                      "AWS_WEB_IDENTITY_TOKEN_FILE",
                                      "AWS_ROLE_ARN",
                                      "AWS_ROLE_SESSION_NAME",
                                      "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                      "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                      "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                      "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                      "AWS_EC2_METADATA_DISABLED",
                                      "AWS_EC2_METADATA_SERVICE_ENDPOINT"};

constexpr size_t kMaxProfileFile = 1 << 20;

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Adds the section's values of names that are not in `out` yet. Returns false if there is no such section.
bool read_section(const std::string& path, const std::string& section, Profile* out) {
  std::ifstream file(path);
  std::string line;
  bool is_inside = false;
  bool is_found = false;
  for (size_t bytes = 0; bytes < kMaxProfileFile && std::getline(file, line); bytes += line.size() + 1) {
    // Indented lines belong to the value before, and none of these values is used here.
    if (line.empty() || line[0] == '#' || line[0] == ';' || line[0] == ' ' || line[0] == '\t') continue;
    const std::string_view text = trim(line);
    if (text.starts_with('[')) {
      const size_t end = text.find(']');
      is_inside = end != std::string_view::npos && trim(text.substr(1, end - 1)) == section;
      is_found = is_found || is_inside;
    } else if (const size_t equals = text.find('='); is_inside && equals != std::string_view::npos) {
      out->emplace(trim(text.substr(0, equals)), trim(text.substr(equals + 1)));
    }
  }
  return is_found;
}

bool is_host(std::string_view text) {
  if (text.empty() || text.size() > 255) return false;
  for (const char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
          c == '_' || c == ':' || c == '[' || c == ']')) {
      return false;
    }
  }
  return true;
}

bool read_endpoint(std::string_view url, Settings* settings) {
  if (url.starts_with("https://")) {
    url.remove_prefix(8);
  } else if (url.starts_with("http://")) {
    settings->is_https = false;
    url.remove_prefix(7);
  } else {
    return false;
  }
  const size_t slash = std::min(url.find('/'), url.size());
  std::string_view host = url.substr(0, slash);
  std::string_view path = url.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::string_view own_port = settings->is_https ? ":443" : ":80";
  if (host.ends_with(own_port)) host.remove_suffix(own_port.size());
  if (!is_host(host) || path.find_first_of("?#@ ") != std::string_view::npos) return false;
  settings->host = host;
  settings->base_path = uri_encode(path, true);
  return true;
}

bool is_region(std::string_view text) {
  if (text.empty() || text.size() > 40) return false;
  for (const char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
      return false;
  }
  return true;
}

// Returns the first text that is not empty.
template <class... Rest>
const std::string& first_of(const std::string& one, const Rest&... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return one;
  } else {
    return one.empty() ? first_of(rest...) : one;
  }
}

// Reads the prefix from the URL's path. Some proxies would change a path with an empty part or one of dots alone.
bool read_prefix(std::string_view path, std::string* out) {
  while (path.starts_with('/')) path.remove_prefix(1);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.empty()) return true;
  *out = path;
  *out += '/';
  if (out->size() > 512) return false;
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  }
  for (size_t at = 0; at < out->size();) {
    const size_t slash = out->find('/', at);
    const std::string_view part(out->data() + at, slash - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = slash + 1;
  }
  return true;
}

}  // namespace

const kvbm_store_option_help_t kOptions[kOptionCount] = {
    {"endpoint", "http://HOST:PORT or https://HOST of the server; default: Amazon's of the region"},
    {"region", "region that requests are signed for; default: AWS_REGION, the profile's, or us-east-1"},
    {"style", "path (HOST/BUCKET) or host (BUCKET.HOST); default: host at amazonaws.com, else path"},
    {"profile", "profile of ~/.aws/credentials and ~/.aws/config to take credentials from; default: the usual chain"},
    {"role", "ARN of a role to take on through STS; default: none"},
    {"ca", "file of certificates (PEM) that sign the server's; default: AWS_CA_BUNDLE or the system's"},
    {"verify", "on, or off to trust any certificate; default on"},
    {"payload",
     "signed (SHA-256), or unsigned to send a CRC-32C instead, which takes less time on both sides; default signed"},
    {"connections", "requests at a time, 1 to 256; default 32"},
};

Environment read_environment() {
  Environment environment;
  for (const char* name : kVariables) {
    const char* value = std::getenv(name);
    if (value != nullptr) environment.emplace(name, value);
  }
  return environment;
}

const std::string& get(const Environment& environment, const std::string& name) {
  static const std::string kNone;
  const auto found = environment.find(name);
  return found == environment.end() ? kNone : found->second;
}

std::optional<Profile> read_profile(const Environment& environment, const std::string& name) {
  const std::string home = get(environment, "HOME") + "/.aws/";
  Profile profile;
  const std::string& keys = get(environment, "AWS_SHARED_CREDENTIALS_FILE");
  bool is_found = read_section(keys.empty() ? home + "credentials" : keys, name, &profile);
  const std::string& config = get(environment, "AWS_CONFIG_FILE");
  is_found |=
      read_section(config.empty() ? home + "config" : config, name == "default" ? name : "profile " + name, &profile);
  if (!is_found) return std::nullopt;
  return profile;
}

std::string Settings::request_path(const std::string& key) const {
  std::string path = base_path;
  if (!is_host_style) path += "/" + uri_encode(bucket, false);
  if (!key.empty() || path.empty()) path += "/" + uri_encode(key, true);
  return path;
}

std::string Settings::description() const {
  return "s3://" + bucket + (prefix.empty() ? "" : "/" + prefix.substr(0, prefix.size() - 1)) +
         "?endpoint=" + endpoint();
}

namespace {

using Options = std::map<std::string, std::string>;

// The functions below each read a part of a URL, and return a sentence if something is wrong.
std::string read_place(const kvbm_store_config_t& config, Settings* settings) {
  settings->bucket = config.authority;
  if (settings->bucket.empty()) return "an S3 store needs a bucket: s3://bucket/prefix";
  if (!is_host(settings->bucket) || settings->bucket.find(':') != std::string::npos) {
    return "'" + settings->bucket + "' is no name of a bucket: letters, digits, '-' and '.'";
  }
  if (!read_prefix(config.path, &settings->prefix)) {
    return "the path of an S3 store is its prefix: at most 512 bytes, without empty parts, '.' and '..'";
  }
  settings->access_key = config.user;
  settings->secret = config.password;
  if (settings->access_key.empty() != settings->secret.empty()) {
    return "give both access key and secret key before the '@' of an S3 store, or neither";
  }
  return {};
}

std::string read_server(const Options& options, const Environment& environment, Settings* settings) {
  settings->profile = get(options, "profile");
  settings->role = get(options, "role");
  Profile profile;
  const std::string& name = first_of(settings->profile, get(environment, "AWS_PROFILE"));
  if (const auto read = read_profile(environment, name.empty() ? "default" : name)) {
    profile = *read;
  } else if (!settings->profile.empty()) {
    return "there is no profile '" + name + "' in ~/.aws/credentials and ~/.aws/config or the files named instead";
  }
  settings->region = first_of(get(options, "region"), get(environment, "AWS_REGION"),
                              get(environment, "AWS_DEFAULT_REGION"), get(profile, "region"), std::string("us-east-1"));
  if (!is_region(settings->region)) return "region '" + settings->region + "' of the S3 store is none";

  const std::string amazon =
      "https://s3." + settings->region + ".amazonaws.com" + (settings->region.starts_with("cn-") ? ".cn" : "");
  const std::string endpoint = first_of(get(options, "endpoint"), get(environment, "AWS_ENDPOINT_URL_S3"),
                                        get(environment, "AWS_ENDPOINT_URL"), get(profile, "endpoint_url"), amazon);
  // The message does not repeat the endpoint, which may contain a password.
  if (!read_endpoint(endpoint, settings)) return "the endpoint of the S3 store is no http://HOST:PORT or https://HOST";
  const std::string& style = get(options, "style");
  if (!style.empty() && style != "path" && style != "host")
    return "style of the S3 store is path or host, not " + style;
  // No certificate matches a bucket with dots in front of a host.
  settings->is_host_style = style.empty() ? settings->host.find("amazonaws.com") != std::string::npos &&
                                                (!settings->is_https || settings->bucket.find('.') == std::string::npos)
                                          : style == "host";
  return {};
}

std::string read_transfer(const Options& options, const Environment& environment, Settings* settings) {
  settings->ca_file = first_of(get(options, "ca"), get(environment, "AWS_CA_BUNDLE"));
  if (!settings->ca_file.empty() && !std::ifstream(settings->ca_file)) {
    return "the file '" + settings->ca_file + "' of the S3 store's ca cannot be read";
  }
  if (const auto& verify = get(options, "verify"); !verify.empty()) {
    if (verify != "on" && verify != "off") return "verify of the S3 store is on or off, not " + verify;
    settings->verifies = verify == "on";
  }
  if (const auto& payload = get(options, "payload"); !payload.empty()) {
    if (payload != "signed" && payload != "unsigned")
      return "payload of the S3 store is signed or unsigned, not " + payload;
    settings->signs_payload = payload == "signed";
  }
  if (const auto& connections = get(options, "connections"); !connections.empty()) {
    const char* end = connections.data() + connections.size();
    const auto read = std::from_chars(connections.data(), end, settings->connections);
    if (read.ec != std::errc() || read.ptr != end || settings->connections < 1 || settings->connections > 256) {
      return "connections of the S3 store is 1 to 256, not " + connections;
    }
  }
  return {};
}

}  // namespace

std::optional<Settings> read_settings(const kvbm_store_config_t& config, const Environment& environment,
                                      std::string* message) {
  Options options;
  for (size_t i = 0; i < config.n_options; ++i) options[config.options[i].name] = config.options[i].value;
  for (const auto& [name, value] : options) {
    bool is_known = false;
    for (const auto& known : kOptions) is_known |= name == known.name;
    *message = !is_known       ? "an S3 store has no option '" + name + "'"
               : value.empty() ? "option '" + name + "' of the S3 store is empty"
                               : "";
    if (!message->empty()) return std::nullopt;
  }
  Settings settings;
  *message = read_place(config, &settings);
  if (message->empty()) *message = read_server(options, environment, &settings);
  if (message->empty()) *message = read_transfer(options, environment, &settings);
  if (!message->empty()) return std::nullopt;
  return settings;
}

}  // namespace kvbm_s3
