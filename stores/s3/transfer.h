// An operation in progress: its requests, one after the other, and their answers.
#pragma once

#include <curl/curl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "answers.h"
#include "kvbm_plugin.h"
#include "settings.h"
#include "sigv4.h"

namespace kvbm_s3 {

inline constexpr uint64_t kPartBytes = 16ULL << 20;    // of a multipart upload
inline constexpr uint64_t kMaxPlainPut = 64ULL << 20;  // larger objects are uploaded in parts
inline constexpr uint64_t kMaxObject = 10'000 * kPartBytes;

struct Transfer {
  enum class Step : uint8_t { single, create, part, complete, abandon };

  explicit Transfer(kvbm_store_op_t* operation);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer();

  // The body of the next request.
  [[nodiscard]] const char* body() const;
  [[nodiscard]] size_t body_bytes() const;
  // Returns whether the body's digest has to be computed before it is sent, which takes a while.
  [[nodiscard]] bool needs_digest() const { return digest.empty() && body_bytes() > 0; }
  // Prepares `easy` to be run, signed for `unix_s`.
  void prepare(const Settings& settings, const Credentials& credentials, int64_t unix_s);
  // Handles the answer and fills `done` and `more` of the operation. send_again: another request has to be sent.
  enum class Next : uint8_t { finished, send_again };
  Next conclude(const Settings& settings, CURLcode code, Verdict* out);

  kvbm_store_op_t* op;                                        // nullptr: the operation has finished, cleanup is left
  std::function<void(kvbm_status_t, const Verdict&)> on_end;  // called instead of the library's `finished`
  std::chrono::steady_clock::time_point deadline;
  std::atomic<bool> is_cancelled{false};

  Step step = Step::single;
  std::string digest;  // digest of the body: SHA-256 in hex, or CRC-32C if payloads are not signed
  Answer answer;
  CURL* easy = nullptr;
  int64_t signed_at = 0;
  bool has_corrected_clock = false;
  bool has_renewed = false;
  std::shared_ptr<const Credentials> credentials;
  uint64_t searches = 0;  // count of credential searches when it began to wait for other credentials
  Verdict before_renewal;
  std::string upload_id;

 private:
  [[nodiscard]] std::string key(const Settings& settings) const { return settings.prefix + op_name_; }
  Pairs query(const Settings& settings) const;
  [[nodiscard]] const char* method() const;
  Next conclude_list(const Settings& settings, Verdict* out);
  static size_t on_header(char* data, size_t size, size_t count, void* user);
  static size_t on_body(char* data, size_t size, size_t count, void* user);
  static size_t on_upload(char* data, size_t size, size_t count, void* user);
  static int on_seek(void* user, curl_off_t offset, int origin);

  const std::string op_name_;
  curl_slist* headers_ = nullptr;
  size_t sent_ = 0;
  size_t part_ = 0;
  std::vector<std::string> etags_;
  std::string own_body_;    // body of `complete`
  std::string list_after_;  // start of the listing's next request; "": the operation's own
};

}  // namespace kvbm_s3
