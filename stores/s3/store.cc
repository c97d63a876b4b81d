#include "store.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <future>

#include "http.h"

namespace kvbm_s3 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kClockSlack = 240;  // seconds by which clocks may differ; servers refuse 900

}  // namespace

Store::Store(Settings settings, Environment environment, const kvbm_store_config_t* config)
    : settings_(std::move(settings)),
      config_(config),
      multi_(curl_multi_init()),
      clock_offset_s_(settings_.clock_offset_s) {
  if (multi_ == nullptr) throw std::bad_alloc();
  const auto connections = static_cast<long>(settings_.connections);
  curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, connections);
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, connections);
  try {
    keeper_ = std::make_unique<CredentialKeeper>(
        settings_, std::move(environment), fetch, [this] { wake(); },
        [this](const std::string& text) { log(1, "S3: " + text); });
    const unsigned digesters = std::clamp(std::thread::hardware_concurrency() / 4, 1U, 4U);
    for (unsigned i = 0; i < digesters; ++i)
      digest_threads_.push_back(quiet_thread("kvbm-s3-hash", [this] { run_digests(); }));
    event_thread_ = quiet_thread("kvbm-s3", [this] { run(); });
  } catch (...) {
    stop();
    throw;
  }
}

Store::~Store() { stop(); }

void Store::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
  }
  digest_wanted_.notify_all();
  wake();
  for (std::thread& thread : digest_threads_) thread.join();
  if (event_thread_.joinable()) event_thread_.join();
  keeper_.reset();  // the keeper wakes the event thread through `multi_`
  curl_multi_cleanup(multi_);
}

void Store::wake() { curl_multi_wakeup(multi_); }

void Store::start(kvbm_store_op_t* const* ops, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    ops[i]->done = 0;
    ops[i]->more = 0;
    Owned transfer;
    try {
      transfer = std::make_unique<Transfer>(ops[i]);
      const std::lock_guard<std::mutex> lock(mutex_);
      of_op_[ops[i]] = transfer.get();
    } catch (const std::bad_alloc&) {
      config_->finished(config_->context, ops[i], KVBM_ERR_AGAIN);
      continue;
    }
    submit(std::move(transfer));
  }
}

void Store::submit(Owned transfer) {
  if (!transfer->needs_digest()) return hand_over(std::move(transfer));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    digests_.push_back(std::move(transfer));
  }
  digest_wanted_.notify_one();
}

void Store::hand_over(Owned transfer) {
  bool is_first = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_first = incoming_.empty();
    incoming_.push_back(std::move(transfer));
  }
  if (is_first) wake();
}

void Store::cancel(kvbm_store_op_t* op) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = of_op_.find(op);
    if (found == of_op_.end()) return;
    found->second->is_cancelled.store(true, std::memory_order_relaxed);
    has_cancelled_.store(true, std::memory_order_release);
  }
  wake();
}

void Store::run_digests() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    digest_wanted_.wait(lock, [this] { return is_stopping_ || !digests_.empty(); });
    if (digests_.empty()) return;
    Owned transfer = std::move(digests_.front());
    digests_.pop_front();
    lock.unlock();
    if (!transfer->is_cancelled.load(std::memory_order_relaxed) && Clock::now() < transfer->deadline) {
      const bool is_signed = settings_.signs_payload || transfer->step != Transfer::Step::single;
      transfer->digest = is_signed ? sha256_hex(transfer->body(), transfer->body_bytes())
                                   : crc32c_base64(transfer->body(), transfer->body_bytes());
    }
    hand_over(std::move(transfer));
    lock.lock();
  }
}

void Store::run() {
  while (true) {
    take_incoming();
    int running = 0;
    curl_multi_perform(multi_, &running);
    end_answered();
    end_cancelled();
    go_on_waiting();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (is_stopping_ && incoming_.empty() && digests_.empty() && running_.empty() && waiting_.empty()) return;
      if (!incoming_.empty()) continue;
    }
    curl_multi_poll(multi_, nullptr, 0, poll_ms(), nullptr);
  }
}

// Returns how long a poll may take. libcurl's timer of a request can wake it a moment too early, and then no other
// wakes it, so the poll ends shortly after the next deadline in any case.
int Store::poll_ms() const {
  const auto now = Clock::now();
  auto left = std::chrono::milliseconds(waiting_.empty() ? 1000 : 50);
  for (const auto& [key, transfer] : running_) {
    left = std::min(left, std::chrono::ceil<std::chrono::milliseconds>(transfer->deadline - now));
  }
  return static_cast<int>(std::max<int64_t>(left.count(), 5));
}

void Store::take_incoming() {
  std::vector<Owned> taken;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken.swap(incoming_);
  }
  for (Owned& transfer : taken) begin(std::move(transfer));
}

void Store::begin(Owned transfer) {
  if (transfer->is_cancelled.load(std::memory_order_relaxed))
    return finish(std::move(transfer), {KVBM_ERR_CANCELLED, "given up", false, false});
  if (Clock::now() >= transfer->deadline)
    return finish(std::move(transfer), {KVBM_ERR_DEADLINE, "no time was left for it", false, false});
  transfer->credentials = keeper_->current();
  if (!transfer->credentials) {
    transfer->before_renewal = {KVBM_ERR_DEADLINE, "no credentials came in time", false, false};
    waiting_.push_back(std::move(transfer));
    return;
  }
  try {
    transfer->prepare(settings_, *transfer->credentials,
                      static_cast<int64_t>(::time(nullptr)) + clock_offset_s_.load());
  } catch (const std::bad_alloc&) {
    return finish(std::move(transfer), {KVBM_ERR_AGAIN, "no memory", false, false});
  }
  curl_multi_add_handle(multi_, transfer->easy);
  Transfer* const key = transfer.get();
  running_.emplace(key, std::move(transfer));
}

void Store::end_answered() {
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURL* easy = message->easy_handle;
    const CURLcode code = message->data.result;
    void* user = nullptr;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &user);
    curl_multi_remove_handle(multi_, easy);
    auto node = running_.extract(static_cast<Transfer*>(user));
    conclude(std::move(node.mapped()), code);
  }
}

void Store::end_cancelled() {
  if (!has_cancelled_.exchange(false, std::memory_order_acquire)) return;
  std::vector<Owned> ended;
  for (auto at = running_.begin(); at != running_.end();) {
    if (at->second->is_cancelled.load(std::memory_order_relaxed)) {
      curl_multi_remove_handle(multi_, at->second->easy);
      ended.push_back(std::move(at->second));
      at = running_.erase(at);
    } else {
      ++at;
    }
  }
  for (Owned& transfer : ended) finish(std::move(transfer), {KVBM_ERR_CANCELLED, "given up", false, false});
}

void Store::go_on_waiting() {
  if (waiting_.empty()) return;
  std::vector<Owned> waiting;
  waiting.swap(waiting_);
  const auto now = Clock::now();
  const auto current = keeper_->current();
  for (Owned& transfer : waiting) {
    if (current && current != transfer->credentials) {
      begin(std::move(transfer));
    } else if (transfer->is_cancelled.load(std::memory_order_relaxed) || now >= transfer->deadline ||
               (transfer->credentials && keeper_->searches() > transfer->searches)) {
      Verdict verdict = transfer->before_renewal;
      finish(std::move(transfer), std::move(verdict));
    } else {
      waiting_.push_back(std::move(transfer));
    }
  }
}

// Starts a refused request again with a corrected clock, or with other credentials, each once.
bool Store::may_try_again(Owned& transfer, const Verdict& verdict) {
  if (verdict.status != KVBM_ERR_PERMISSION && verdict.status != KVBM_ERR_IO) return false;
  const Answer& answer = transfer->answer;
  const bool is_refused = answer.transport == Transport::ok && answer.status >= 400 && answer.status < 500;
  if (!is_refused) return false;
  if (!transfer->has_corrected_clock && answer.date_s != 0 &&
      std::abs(answer.date_s - transfer->signed_at) > kClockSlack) {
    transfer->has_corrected_clock = true;
    const int64_t offset = answer.date_s - static_cast<int64_t>(::time(nullptr));
    if (std::abs(clock_offset_s_.exchange(offset) - offset) > kClockSlack) {
      log(1, "S3: this machine's clock is " + std::to_string(-offset) +
                 " s ahead of the server's: requests are signed with the server's time");
    }
    begin(std::move(transfer));
    return true;
  }
  if (!transfer->has_renewed && verdict.is_stale_credentials) {
    transfer->has_renewed = true;
    transfer->searches = keeper_->searches();
    if (!keeper_->renew(transfer->credentials)) return false;
    transfer->before_renewal = verdict;
    waiting_.push_back(std::move(transfer));
    return true;
  }
  return false;
}

void Store::conclude(Owned transfer, CURLcode code) {
  Verdict verdict;
  Transfer::Next next = Transfer::Next::finished;
  try {
    next = transfer->conclude(settings_, code, &verdict);
  } catch (const std::bad_alloc&) {
    verdict = {KVBM_ERR_AGAIN, "no memory", false, false};
  }
  if (next == Transfer::Next::send_again) return submit(std::move(transfer));
  if (may_try_again(transfer, verdict)) return;
  finish(std::move(transfer), std::move(verdict));
}

void Store::finish(Owned transfer, Verdict verdict) {
  kvbm_store_op_t* const op = transfer->op;
  if (op == nullptr) return;  // this store's own request
  if (verdict.status != KVBM_OK) {
    const std::string text = for_people(verdict.clause, sizeof op->message - 1);
    std::memcpy(op->message, text.c_str(), text.size() + 1);
  }
  const bool is_kept = verdict.status != KVBM_OK && !transfer->upload_id.empty();
  transfer->op = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    of_op_.erase(op);
  }
  if (transfer->on_end) {
    transfer->on_end(verdict.status, verdict);
  } else {
    config_->finished(config_->context, op, verdict.status);
  }
  if (is_kept) abandon_upload(transfer);
}

// Removes the parts of an upload that was not completed, because they cost money until then.
void Store::abandon_upload(Owned& transfer) {
  transfer->step = Transfer::Step::abandon;
  transfer->deadline = Clock::now() + std::chrono::seconds(2);
  transfer->is_cancelled.store(false, std::memory_order_relaxed);
  transfer->has_renewed = transfer->has_corrected_clock = true;
  begin(std::move(transfer));
}

Verdict Store::probe(uint64_t timeout_ns) {
  const auto begun = Clock::now();
  const Found found = keeper_->first(timeout_ns);
  if (found.is_unreachable) {
    log(1, "S3: " + found.error);
    return {};
  }
  if (!found.error.empty()) return {KVBM_ERR_PERMISSION, found.error, false, false};
  log(3, "S3: credentials are those of " + found.source);
  const auto gone = static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - begun).count());
  if (gone >= timeout_ns) return {};
  std::vector<char> room(KVBM_STORE_LIST_BYTES);
  kvbm_store_op_t op = {};
  op.kind = KVBM_STORE_LIST;
  op.name = op.after = "";
  op.data = room.data();
  op.bytes = 64;  // room for one name
  op.timeout_ns = timeout_ns - gone;
  std::promise<Verdict> ended;
  auto transfer = std::make_unique<Transfer>(&op);
  transfer->on_end = [&](kvbm_status_t, const Verdict& verdict) { ended.set_value(verdict); };
  submit(std::move(transfer));
  Verdict verdict = ended.get_future().get();
  const bool passes = verdict.status == KVBM_ERR_AGAIN || verdict.status == KVBM_ERR_DEADLINE ||
                      (verdict.status == KVBM_ERR_IO && !verdict.is_no_s3) || verdict.status == KVBM_ERR_DISK_FULL;
  if (passes) {
    log(1, "S3: " + settings_.description() + " cannot be used now: " + verdict.clause);
    return {};
  }
  if (verdict.is_no_s3) verdict.status = KVBM_ERR_UNSUPPORTED;
  if (verdict.status == KVBM_ERR_MISS) verdict.status = KVBM_ERR_CONFIG;
  return verdict;
}

}  // namespace kvbm_s3
