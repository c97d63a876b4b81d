// Where credentials come from, and how they are renewed.
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
  std::string source;  // "the environment"
  std::string error;   // one clause and its remedy; empty where there are credentials
  // Not refused: their source could not be reached.
  bool is_unreachable = false;
  // Asking again may give others.
  bool may_change = false;
};

// The first that there is of: the URL; a profile that it names; the environment; the profile; web identity; container;
// instance role. A role of the URL is taken on with what was found. Blocks, at most some seconds.
Found find_credentials(const Settings& settings, const Environment& environment, const Fetch& fetch, int64_t now_s);

// Keeps credentials that are good. All functions from any thread.
class CredentialKeeper {
 public:
  using Changed = std::function<void()>;                      // on the keeper's thread
  using Warn = std::function<void(const std::string& text)>;  // likewise

  CredentialKeeper(Settings settings, Environment environment, Fetch fetch, Changed changed, Warn warn);
  ~CredentialKeeper();
  CredentialKeeper(const CredentialKeeper&) = delete;
  CredentialKeeper& operator=(const CredentialKeeper&) = delete;

  // What the first search found; waits for it until the time is over: unreachable then.
  Found first(uint64_t timeout_ns);
  // Nothing while there are none, or none that have not expired.
  std::shared_ptr<const Credentials> current();
  // A server refused these: they are looked for anew. False where that gives the same, or was done just now.
  bool renew(const std::shared_ptr<const Credentials>& refused);
  // How many searches have ended.
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
  std::chrono::steady_clock::time_point last_renewal_{};  // asked for by renew()
  std::thread thread_;
};

// A thread with a name, in which no signal of the program's is handled.
std::thread quiet_thread(const char* name, std::function<void()> body);

}  // namespace kvbm_s3
