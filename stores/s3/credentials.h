// Finds credentials and renews them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "fetch.h"
#include "settings.h"
#include "sigv4.h"

namespace kvbm_s3 {

struct Found {
  Credentials credentials;
  std::string source;  // such as "the environment"
  std::string error;   // one clause and its remedy; empty if there are credentials
  // Not a refusal: the source of the credentials could not be reached.
  bool is_unreachable = false;
  // Another search may find other credentials.
  bool may_change = false;
};

// Returns the first credentials found in: the URL; a profile that it names; the environment; the profile; web
// identity; container; instance role. A role in the URL is assumed with these credentials. Blocks for some seconds at
// most.
Found find_credentials(const Settings& settings, const Environment& environment, const Fetch& fetch, int64_t now_s);

// Holds valid credentials and renews them. All functions may be called from any thread.
class CredentialKeeper {
 public:
  using Changed = std::function<void()>;                      // called on the keeper's thread
  using Warn = std::function<void(const std::string& text)>;  // called on the keeper's thread

  CredentialKeeper(Settings settings, Environment environment, Fetch fetch, Changed changed, Warn warn);
  ~CredentialKeeper();
  CredentialKeeper(const CredentialKeeper&) = delete;
  CredentialKeeper& operator=(const CredentialKeeper&) = delete;

  // Returns the result of the first search. Waits for it until the time is over, and then reports it as unreachable.
  Found first(uint64_t timeout_ns);
  // Returns nothing if there are no credentials that have not expired.
  std::shared_ptr<const Credentials> current();
  // Searches again after a server refused these credentials. Returns false if that finds the same ones, or was done
  // just now.
  bool renew(const std::shared_ptr<const Credentials>& refused);
  // Returns how many searches have ended.
  uint64_t searches();

 private:
  void run();
  [[nodiscard]] int64_t now_s() const;

  const Settings settings_;
  const Environment environment_;
  const Fetch fetch_;
  const Changed changed_;
  const Warn warn_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::shared_ptr<const Credentials> credentials_;
  Found first_;
  bool may_change_ = false;
  bool is_wanted_ = false;
  bool is_stopping_ = false;
  uint64_t searches_ = 0;
  bool has_renewed_ = false;
  std::chrono::steady_clock::time_point last_search_{};
  std::chrono::steady_clock::time_point last_renewal_{};  // last search that renew() requested
  std::thread thread_;
};

// Starts a thread with a name, in which no signal of the program is handled.
std::thread quiet_thread(const char* name, std::function<void()> body);

}  // namespace kvbm_s3
