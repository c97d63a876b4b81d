// A bucket with a prefix. Runs many operations at a time on one thread.
#pragma once

#include <curl/curl.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "credentials.h"
#include "settings.h"
#include "transfer.h"

namespace kvbm_s3 {

class Store {
 public:
  // `config` must outlive the store.
  Store(Settings settings, Environment environment, const kvbm_store_config_t* config);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Returns whether the store can be used, by listing a name. KVBM_OK also if no server answers.
  Verdict probe(uint64_t timeout_ns);
  void start(kvbm_store_op_t* const* ops, size_t n);
  void cancel(kvbm_store_op_t* op);
  [[nodiscard]] const Settings& settings() const { return settings_; }

 private:
  using Owned = std::unique_ptr<Transfer>;

  void stop();
  // May be called from any thread.
  void submit(Owned transfer);
  void hand_over(Owned transfer);  // to the event thread
  void wake();
  void log(int32_t level, const std::string& text) const { config_->log(config_->context, level, text.c_str()); }
  // Computes digests on other threads, so that sockets do not wait for them.
  void run_digests();
  // Run on the event thread.
  void run();
  void take_incoming();
  void begin(Owned transfer);
  void end_answered();
  void end_cancelled();
  void go_on_waiting();
  int poll_ms() const;
  void conclude(Owned transfer, CURLcode code);
  bool may_try_again(Owned& transfer, const Verdict& verdict);
  void finish(Owned transfer, Verdict verdict);
  void abandon_upload(Owned& transfer);

  const Settings settings_;
  const kvbm_store_config_t* const config_;
  CURLM* const multi_;
  std::atomic<int64_t> clock_offset_s_;

  std::mutex mutex_;
  std::condition_variable digest_wanted_;
  std::deque<Owned> digests_;
  std::vector<Owned> incoming_;
  std::unordered_map<kvbm_store_op_t*, Transfer*> of_op_;  // until they are finished
  bool is_stopping_ = false;

  // Used by the event thread alone.
  std::unordered_map<Transfer*, Owned> running_;
  std::vector<Owned> waiting_;  // transfers that wait for credentials
  std::atomic<bool> has_cancelled_{false};

  std::unique_ptr<CredentialKeeper> keeper_;
  std::vector<std::thread> digest_threads_;
  std::thread event_thread_;
};

}  // namespace kvbm_s3
