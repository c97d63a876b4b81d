#include "credentials.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "answers.h"
#include "xml.h"

namespace kvbm_s3 {
namespace {

constexpr const char* kRemedy = ": set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give profile=NAME";

Found failed(const std::string& error, bool is_unreachable = false) {
  Found found;
  found.error = error;
  found.is_unreachable = is_unreachable;
  found.may_change = true;
  return found;
}

int64_t read_time(const std::string& text) {
  tm parts{};
  if (::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return 0;
  return ::timegm(&parts);
}

// Returns the text of a small file without line ends at its end.
std::string read_small(const std::string& path) {
  std::ifstream file(path);
  std::string text(16384, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

// Returns whether a text can be a value of a header: a line end would begin another header.
bool is_header_value(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7F; });
}

bool is_usable(const Credentials& keys) {
  return is_header_value(keys.access_key) && is_header_value(keys.secret) && is_header_value(keys.token);
}

// Returns whether a text is http://HOST or https://HOST, with a path or without.
bool is_endpoint(std::string_view url) {
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!url.starts_with(scheme)) continue;
    url.remove_prefix(scheme.size());
    return !url.empty() && url.front() != '/' && url.find_first_of("?#@ ") == std::string_view::npos &&
           is_header_value(url);
  }
  return false;
}

class Search {
 public:
  Search(const Settings& settings, const Environment& environment, const Fetch& fetch, int64_t now_s)
      : settings_(settings), environment_(environment), fetch_(fetch), now_s_(now_s) {}

  Found run() {
    Found found = base();
    if (found.error.empty() && !settings_.role.empty() && !has_role_) found = assume(settings_.role, found);
    if (is_usable(found.credentials)) return found;
    return failed(found.source + " gives a key or token with a line end or another control character");
  }

 private:
  [[nodiscard]] const std::string& env(const char* name) const { return get(environment_, name); }

  static Found fixed(const std::string& source, const std::string& key, const std::string& secret,
                     const std::string& token) {
    Found found;
    found.source = source;
    found.credentials.access_key = key;
    found.credentials.secret = secret;
    found.credentials.token = token;
    return found;
  }

  Found base() {
    if (!settings_.access_key.empty()) return fixed("the URL", settings_.access_key, settings_.secret, "");
    if (settings_.profile.empty() && !env("AWS_ACCESS_KEY_ID").empty() && !env("AWS_SECRET_ACCESS_KEY").empty()) {
      return fixed("the environment", env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"), env("AWS_SESSION_TOKEN"));
    }
    const std::string& named = settings_.profile.empty() ? env("AWS_PROFILE") : settings_.profile;
    const std::string name = named.empty() ? "default" : named;
    if (const auto profile = read_profile(environment_, name)) {
      Found found = of_profile(name, *profile, 4);
      if (found.error.empty() || !named.empty()) return found;
    } else if (!named.empty()) {
      return failed("there is no profile " + for_people(name, 40));
    }
    if (!env("AWS_WEB_IDENTITY_TOKEN_FILE").empty() && !env("AWS_ROLE_ARN").empty()) {
      has_role_ = !settings_.role.empty();
      return web_identity(has_role_ ? settings_.role : env("AWS_ROLE_ARN"), env("AWS_WEB_IDENTITY_TOKEN_FILE"));
    }
    if (!env("AWS_CONTAINER_CREDENTIALS_FULL_URI").empty() || !env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").empty()) {
      return container();
    }
    std::string disabled = env("AWS_EC2_METADATA_DISABLED");
    for (char& c : disabled) c = static_cast<char>(::tolower(c));
    if (disabled == "true") return failed(std::string("no credentials were found") + kRemedy);
    return instance();
  }

  Found of_profile(const std::string& name, const Profile& profile, int levels) {
    const std::string label = "profile " + for_people(name, 40);
    const std::string& role = get(profile, "role_arn");
    if (role.empty()) {
      if (get(profile, "aws_access_key_id").empty() || get(profile, "aws_secret_access_key").empty()) {
        const bool is_other = profile.contains("sso_session") || profile.contains("sso_start_url") ||
                              profile.contains("credential_process");
        return failed(
            label + (is_other ? " uses a login or a program, which kvbm does not: export its keys into the environment"
                              : " has no keys"));
      }
      Found found = fixed(label, get(profile, "aws_access_key_id"), get(profile, "aws_secret_access_key"),
                          get(profile, "aws_session_token"));
      found.may_change = true;  // the file may be written again
      return found;
    }
    if (const auto& file = get(profile, "web_identity_token_file"); !file.empty()) return web_identity(role, file);
    const std::string& source = get(profile, "source_profile");
    if (source.empty() || levels == 0) return failed(label + " has a role without a source_profile that has keys");
    const auto below = read_profile(environment_, source);
    if (!below) return failed(label + " takes its keys from a profile that does not exist");
    if (source == name) {  // the profile's own keys
      Profile keys = *below;
      keys.erase("role_arn");
      return assume(role, of_profile(source, keys, 0));
    }
    return assume(role, of_profile(source, *below, levels - 1));
  }

  FetchRequest sts_request(const std::string& form) {
    FetchRequest request;
    const std::string& given = env("AWS_ENDPOINT_URL_STS");
    request.url = given.empty() ? "https://sts." + settings_.region + ".amazonaws.com" : given;
    if (!request.url.ends_with("/")) request.url += '/';
    request.method = "POST";
    request.body = form;
    request.headers = {{"content-type", "application/x-www-form-urlencoded"}};
    request.verifies = settings_.verifies;
    request.ca_file = settings_.ca_file;
    return request;
  }

  [[nodiscard]] std::string session_name() const {
    const std::string& name = env("AWS_ROLE_SESSION_NAME");
    return name.empty() ? "kvbm" : name;
  }

  Found of_sts(const FetchRequest& request, const std::string& source) {
    if (!is_endpoint(request.url)) return failed("AWS_ENDPOINT_URL_STS is no http://HOST:PORT or https://HOST");
    const FetchAnswer answer = fetch_(request);
    if (!answer.error.empty() || answer.status >= 500) return failed("STS does not answer: " + answer.error, true);
    Found found;
    found.source = source;
    found.may_change = true;
    const bool is_read = read_xml(answer.body, [&](std::string_view path, std::string_view text) {
      if (path.ends_with("/Credentials/AccessKeyId")) found.credentials.access_key = text;
      if (path.ends_with("/Credentials/SecretAccessKey")) found.credentials.secret = text;
      if (path.ends_with("/Credentials/SessionToken")) found.credentials.token = text;
      if (path.ends_with("/Credentials/Expiration")) found.credentials.expires_at = read_time(std::string(text));
    });
    if (answer.status == 200 && is_read && !found.credentials.secret.empty()) return found;
    const auto error = parse_error(answer.body);
    return failed("STS gives no credentials for " + source + ": " + std::to_string(answer.status) + " " +
                  (error ? for_people(error->code, 40) : "without a reason"));
  }

  Found web_identity(const std::string& role, const std::string& file) {
    const std::string token = read_small(file);  // the file is renewed by other programs
    if (token.empty()) return failed("the web identity token file cannot be read: see AWS_WEB_IDENTITY_TOKEN_FILE");
    return of_sts(sts_request(canonical_query({{"Action", "AssumeRoleWithWebIdentity"},
                                               {"Version", "2011-06-15"},
                                               {"RoleArn", role},
                                               {"RoleSessionName", session_name()},
                                               {"WebIdentityToken", token}})),
                  "a web identity");
  }

  Found assume(const std::string& role, const Found& with) {
    if (!with.error.empty()) return with;
    if (!is_usable(with.credentials)) return with;  // run() says what is wrong
    FetchRequest request = sts_request(canonical_query(
        {{"Action", "AssumeRole"}, {"Version", "2011-06-15"}, {"RoleArn", role}, {"RoleSessionName", session_name()}}));
    if (!is_endpoint(request.url)) return of_sts(request, "a role");
    const size_t begin = request.url.find("://") + 3;
    const std::string date = amz_date(now_s_);
    const std::string hash = sha256_hex(request.body.data(), request.body.size());
    Pairs headers = {{"host", request.url.substr(begin, request.url.find('/', begin) - begin)}, {"x-amz-date", date}};
    if (!with.credentials.token.empty()) headers.emplace_back("x-amz-security-token", with.credentials.token);
    headers.insert(headers.end(), request.headers.begin(), request.headers.end());
    const std::string path = request.url.substr(request.url.find('/', begin));
    const std::string value =
        authorization({"POST", path, "", headers, hash}, with.credentials, settings_.region, "sts", date);
    headers.erase(headers.begin());  // libcurl sends this header itself
    headers.emplace_back("authorization", value);
    request.headers = headers;
    return of_sts(request, "a role");
  }

  // Reads {"AccessKeyId": ..., "SecretAccessKey": ..., "Token": ..., "Expiration": ...}
  Found of_json(const FetchAnswer& answer, const std::string& source) {
    if (!answer.error.empty() || answer.status >= 500)
      return failed(source + " does not answer: " + answer.error, true);
    const auto json = nlohmann::json::parse(answer.body, nullptr, false);
    const auto text = [&](const char* name) {
      const auto value = json.is_object() ? json.find(name) : json.end();
      return json.is_object() && value != json.end() && value->is_string() ? value->get<std::string>() : std::string();
    };
    Found found = fixed(source, text("AccessKeyId"), text("SecretAccessKey"), text("Token"));
    found.may_change = true;
    found.credentials.expires_at = read_time(text("Expiration"));
    if (answer.status == 200 && !found.credentials.access_key.empty() && !found.credentials.secret.empty())
      return found;
    return failed(source + " gives no credentials: " + std::to_string(answer.status) + " " +
                  for_people(text("Code"), 40));
  }

  Found container() {
    FetchRequest request;
    request.timeout_ms = 2000;
    request.uses_proxy = false;
    const std::string& relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    request.url = relative.empty() ? env("AWS_CONTAINER_CREDENTIALS_FULL_URI") : "http://169.254.170.2" + relative;
    // A token is sent over http only to this machine.
    bool is_allowed = request.url.starts_with("https://");
    for (const char* host : {"127.0.0.1", "localhost", "[::1]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"}) {
      const std::string begin = std::string("http://") + host;
      is_allowed |=
          request.url == begin || request.url.starts_with(begin + "/") || request.url.starts_with(begin + ":");
    }
    if (!is_allowed || request.url.find('@') != std::string::npos) {
      return failed("AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor on this machine");
    }
    const std::string& file = env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const std::string token = file.empty() ? env("AWS_CONTAINER_AUTHORIZATION_TOKEN") : read_small(file);
    if (token.find_first_of("\r\n") != std::string::npos)
      return failed("the container's authorization token has line ends");
    if (!token.empty()) request.headers = {{"authorization", token}};
    return of_json(fetch_(request), "the container");
  }

  Found instance() {
    const std::string none = std::string("no credentials were found") + kRemedy;
    FetchRequest request;
    request.timeout_ms = 1000;
    request.uses_proxy = false;
    const std::string& given = env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    std::string base = given.empty() ? "http://169.254.169.254" : given;
    while (base.ends_with('/')) base.pop_back();
    request.method = "PUT";
    request.url = base + "/latest/api/token";
    request.headers = {{"x-aws-ec2-metadata-token-ttl-seconds", "21600"}};
    const FetchAnswer token = fetch_(request);
    if (!token.error.empty() || token.status != 200 || token.body.empty() || token.body.size() > 1024 ||
        token.body.find_first_of("\r\n") != std::string::npos) {
      return failed(none);
    }
    request.method = "GET";
    request.headers = {{"x-aws-ec2-metadata-token", token.body}};
    request.url = base + "/latest/meta-data/iam/security-credentials/";
    const FetchAnswer roles = fetch_(request);
    if (!roles.error.empty() || roles.status != 200 || roles.body.empty())
      return failed("the instance has no role" + std::string(kRemedy));
    request.url += uri_encode(roles.body.substr(0, roles.body.find_first_of("\r\n")), false);
    return of_json(fetch_(request), "the instance role");
  }

  const Settings& settings_;
  const Environment& environment_;
  const Fetch& fetch_;
  const int64_t now_s_;
  bool has_role_ = false;  // true once the URL's role is assumed
};

}  // namespace

Found find_credentials(const Settings& settings, const Environment& environment, const Fetch& fetch, int64_t now_s) {
  return Search(settings, environment, fetch, now_s).run();
}

std::thread quiet_thread(const char* name, std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(body));
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

CredentialKeeper::CredentialKeeper(Settings settings, Environment environment, Fetch fetch, Changed changed, Warn warn)
    : settings_(std::move(settings)),
      environment_(std::move(environment)),
      fetch_(std::move(fetch)),
      changed_(std::move(changed)),
      warn_(std::move(warn)),
      thread_(quiet_thread("kvbm-s3-keys", [this] { run(); })) {}

CredentialKeeper::~CredentialKeeper() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

int64_t CredentialKeeper::now_s() const { return static_cast<int64_t>(::time(nullptr)) + settings_.clock_offset_s; }

void CredentialKeeper::run() {
  bool has_warned = false;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_stopping_) {
    lock.unlock();
    Found found = find_credentials(settings_, environment_, fetch_, now_s());
    if (!found.error.empty() && !has_warned && searches() > 0)
      warn_("credentials could not be renewed: " + found.error);
    has_warned = !found.error.empty();
    lock.lock();
    if (searches_ == 0) first_ = found;
    ++searches_;
    last_search_ = std::chrono::steady_clock::now();
    is_wanted_ = false;
    may_change_ = found.may_change;
    std::chrono::seconds again = std::chrono::hours(24);
    if (!found.error.empty()) {
      again = std::chrono::seconds(10);
    } else {
      credentials_ = std::make_shared<const Credentials>(found.credentials);
      // The next search begins five minutes before their end, or at half of a shorter life.
      if (const int64_t left = found.credentials.expires_at - now_s(); found.credentials.expires_at != 0) {
        again = std::chrono::seconds(std::max<int64_t>(left - std::min<int64_t>(300, left / 2), 1));
      }
    }
    wake_.notify_all();
    lock.unlock();
    changed_();
    lock.lock();
    wake_.wait_for(lock, again, [this] { return is_stopping_ || is_wanted_; });
  }
}

Found CredentialKeeper::first(uint64_t timeout_ns) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto time = std::chrono::nanoseconds(std::min<uint64_t>(timeout_ns, 3'600'000'000'000U));
  if (!wake_.wait_for(lock, time, [this] { return searches_ > 0; })) return failed("no credentials came in time", true);
  return first_;
}

std::shared_ptr<const Credentials> CredentialKeeper::current() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (credentials_ && credentials_->expires_at != 0 && credentials_->expires_at <= now_s()) {
    if (!is_wanted_ && std::chrono::steady_clock::now() - last_search_ > std::chrono::seconds(1)) {
      is_wanted_ = true;
      wake_.notify_all();
    }
    return nullptr;
  }
  return credentials_;
}

bool CredentialKeeper::renew(const std::shared_ptr<const Credentials>& refused) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_wanted_ || refused != credentials_) return true;  // under way, or there are others
  const auto now = std::chrono::steady_clock::now();
  if (!may_change_ || (has_renewed_ && now - last_renewal_ < std::chrono::seconds(5))) return false;
  has_renewed_ = true;
  last_renewal_ = now;
  is_wanted_ = true;
  wake_.notify_all();
  return true;
}

uint64_t CredentialKeeper::searches() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return searches_;
}

}  // namespace kvbm_s3
