#include "tier/store/requests.h"

#include <algorithm>
#include <utility>

namespace kvbm::tier::store {

namespace {

constexpr uint64_t kFirstWaitNs = 50'000'000;
// Less time than this is not worth another try.
constexpr uint64_t kLeastTryNs = 1'000'000;
constexpr const char* kNoAnswer = "it did not answer in time";

bool is_failure(Code code) noexcept { return code != Code::ok && code != Code::miss; }
// True if another try may help.
bool may_pass(Code code) noexcept {
  return code == Code::again || code == Code::io_error || code == Code::deadline || code == Code::internal;
}
// True if requests fail until an administrator acts.
bool is_refusal(Code code) noexcept { return code == Code::not_permitted || code == Code::bad_config; }

// Turns the store's status into one of those allowed for the verb.
Code checked(Verb verb, Code code) noexcept {
  switch (code) {
    case Code::ok:
    case Code::again:
    case Code::io_error:
    case Code::deadline:
    case Code::disk_full:
    case Code::not_permitted:
    case Code::bad_config:
    case Code::unsupported:
      return code;
    case Code::miss:
      return verb == Verb::get ? Code::miss : Code::io_error;
    default:
      return Code::io_error;
  }
}

}  // namespace

Requests::Requests(ObjectStore& store, Executor& executor, Random& random, uint64_t try_timeout_ns)
    : store_(store), executor_(executor), random_(random), try_timeout_ns_(try_timeout_ns) {}

void Requests::submit(std::unique_ptr<ObjectRequest> request, uint64_t deadline_ns, bool urgent, Done done) {
  auto call = std::make_shared<Call>();
  call->request = std::move(request);
  call->deadline_ns = deadline_ns;
  call->urgent = urgent;
  call->done = std::move(done);
  const uint64_t now = executor_.clock().now_ns();
  bool refused = false;
  {
    MutexLock lock(mutex_);
    if (closed_) {
      refused = true;
    } else if (backs_off_) {
      // When the time has come, one request goes through.
      refused = probing_ || now < back_until_;
      if (!refused) call->probe = probing_ = true;
    }
    if (refused) {
      ++stats_.refused;
    } else {
      (urgent || call->probe ? urgent_ : others_).push_back(call);
    }
  }
  if (refused) {
    end(call, Code::io_error, std::move(call->request));
    return;
  }
  if (deadline_ns != kNever) {
    executor_.post_at(deadline_ns, [self = shared_from_this(), call] { self->give_up(call); });
  }
  pump();
}

std::unique_ptr<ObjectRequest> Requests::run(std::unique_ptr<ObjectRequest> request) {
  uint64_t id = 0;
  {
    MutexLock lock(mutex_);
    if (closed_) return nullptr;
    id = next_run_++;
    running_.emplace(id, false);
    ++calling_;
    ++stats_.requests;
    if (request->verb == Verb::put) stats_.sent_bytes += request->bytes;
  }
  request->id = id;
  auto back = store_.run(std::move(request), [self = shared_from_this(), id] { self->ran(id); });
  const Code code = back != nullptr ? checked(back->verb, back->code) : Code::deadline;
  int change = 0;
  {
    MutexLock lock(mutex_);
    if (is_failure(code)) ++stats_.failures;
    change = note(code, false, back != nullptr ? back->message : kNoAnswer, executor_.clock().now_ns());
    if (const auto at = running_.find(id); back == nullptr && at != running_.end()) {
      at->second = true;
      ++stats_.unanswered;
    }
  }
  tell(change);
  if (back != nullptr) ran(id);
  called();
  return back;
}

void Requests::ran(uint64_t id) {
  {
    MutexLock lock(mutex_);
    const auto at = running_.find(id);
    if (at == running_.end()) return;
    if (at->second) --stats_.unanswered;
    running_.erase(at);
  }
  end_if_idle();
}

bool Requests::take_next(CallRef& call, uint64_t now) {
  if (closed_) return false;  // nothing is queued, and the store may be gone
  // A store that does not answer must not get ever more requests.
  const uint32_t most = std::max(1U, store_.facts().concurrency);
  while (in_flight_.size() < most) {
    auto& queue = urgent_.empty() ? others_ : urgent_;
    if (queue.empty()) return false;
    call = std::move(queue.front());
    queue.pop_front();
    if (call->over) continue;
    if (call->deadline_ns != kNever && now + kLeastTryNs > call->deadline_ns) continue;  // give_up() will end it
    call->id = next_id_++;
    call->sent_ns = now;
    ++call->tries;
    in_flight_.emplace(call->id, call);
    ++calling_;
    ++stats_.requests;
    if (call->request->verb == Verb::put) stats_.sent_bytes += call->request->bytes;
    return true;
  }
  return false;
}

void Requests::pump() {
  for (;;) {
    CallRef call;
    {
      MutexLock lock(mutex_);
      if (!take_next(call, executor_.clock().now_ns())) return;
    }
    send(call);
  }
}

void Requests::send(const CallRef& call) {
  std::unique_ptr<ObjectRequest> request = std::move(call->request);
  const uint64_t now = executor_.clock().now_ns();
  const uint64_t left =
      call->deadline_ns == kNever || call->deadline_ns <= now ? try_timeout_ns_ : call->deadline_ns - now;
  const uint64_t id = call->id;
  request->id = id;
  request->timeout_ns = std::min(try_timeout_ns_, left);
  request->code = Code::internal;
  request->done = 0;
  request->more = false;
  request->message.clear();
  request->finished = [self = shared_from_this(), call](std::unique_ptr<ObjectRequest> back) {
    // This is the store's thread: the rest may take long, so it is posted.
    MutexLock lock(self->mutex_);
    if (self->left_) return;
    self->executor_.post([self, call, held = std::make_shared<std::unique_ptr<ObjectRequest>>(std::move(back))] {
      self->finished(call, std::move(*held));
    });
  };
  // A little longer than the store's own timeout, so that its answer comes first.
  executor_.post_at(now + request->timeout_ns + request->timeout_ns / 8 + kLeastTryNs,
                    [self = shared_from_this(), call, id] { self->overdue(call, id); });
  store_.start(std::move(request));
  called();
}

void Requests::finished(const CallRef& call, std::unique_ptr<ObjectRequest> request) {
  const uint64_t now = executor_.clock().now_ns();
  Code code = checked(request->verb, request->code);
  if (code == Code::ok && (request->verb == Verb::get || request->verb == Verb::list) &&
      request->done > request->bytes) {
    code = Code::io_error;
  }
  int change = 0;
  bool again = false, late = false;
  uint64_t wait = 0;
  {
    MutexLock lock(mutex_);
    in_flight_.erase(request->id);
    ++telling_;  // end() may follow
    late = call->over || call->id != request->id;
    if (call->over && stats_.unanswered != 0) --stats_.unanswered;
    if (!late) call->id = 0;
    if (code == Code::ok && request->verb == Verb::get) stats_.received_bytes += request->done;
    if (is_failure(code)) ++stats_.failures;
    if (!late) change = note(code, call->probe, request->message, now);
    if (!late && may_pass(code) && call->tries < kTries && !backs_off_ && !closed_) {
      wait = kFirstWaitNs << (call->tries - 1);
      wait = wait / 2 + random_.below(wait);
      again = call->deadline_ns == kNever || now + wait + kLeastTryNs < call->deadline_ns;
      if (again) {
        ++stats_.retries;
        ++waiting_;
        call->request = std::move(request);
      }
    }
  }
  tell(change);
  if (again) {
    executor_.post_at(now + wait, [self = shared_from_this(), call] {
      bool closed = false;
      {
        MutexLock lock(self->mutex_);
        --self->waiting_;
        closed = self->closed_;
        if (!call->over && !closed) (call->urgent ? self->urgent_ : self->others_).push_back(call);
      }
      if (closed) self->end(call, Code::closed, std::move(call->request));
      self->pump();
      self->end_if_idle();
    });
  } else if (!late) {
    end(call, code, std::move(request));
  }
  pump();
  answered();
}

// The store has not answered within the timeout of a try.
void Requests::overdue(const CallRef& call, uint64_t id) {
  {
    MutexLock lock(mutex_);
    if (call->over || call->id != id) return;
    ++calling_;
  }
  store_.cancel(id);
  called();
  give_up(call);
}

void Requests::give_up(const CallRef& call) {
  uint64_t id = 0;
  int change = 0;
  {
    MutexLock lock(mutex_);
    if (call->over) return;
    call->over = true;
    ++telling_;
    ++stats_.overdue;
    id = call->id;
    if (id != 0) {
      const uint64_t now = executor_.clock().now_ns();
      ++calling_;
      ++stats_.unanswered;
      ++stats_.failures;
      if (call->probe || now - call->sent_ns >= std::min(kSlowNs, try_timeout_ns_)) {
        change = note(Code::deadline, call->probe, kNoAnswer, now);
      }
    } else if (call->probe) {
      probing_ = false;
    }
  }
  if (id != 0) {
    store_.cancel(id);
    called();
  }
  tell(change);
  answer(call, Code::deadline, nullptr);
  pump();
}

void Requests::end(const CallRef& call, Code code, std::unique_ptr<ObjectRequest> request) {
  {
    MutexLock lock(mutex_);
    if (call->over || request == nullptr) return;
    call->over = true;
    ++telling_;
  }
  request->code = code;
  answer(call, code, std::move(request));
}

// Posts the result to the caller. The answer counts in telling_ until the caller has returned. Timers keep `call`
// alive, so `done` is moved out of it, together with everything that `done` holds.
void Requests::answer(const CallRef& call, Code code, std::unique_ptr<ObjectRequest> request) {
  executor_.post([self = shared_from_this(), code, done = std::move(call->done), back = std::move(request)]() mutable {
    done(code, std::move(back));
    done = {};
    self->answered();
  });
}

void Requests::answered() {
  {
    MutexLock lock(mutex_);
    --telling_;
  }
  end_if_idle();
}

int Requests::note(Code code, bool probe, const std::string& message, uint64_t now) {
  if (probe) probing_ = false;
  if (!is_failure(code)) {
    failures_ = 0;
    back_off_ns_ = 0;
    if (!backs_off_) return 0;
    backs_off_ = false;
    refuses_.store(false, std::memory_order_release);
    trouble_.clear();
    return -1;
  }
  // A full store, or a call that it does not support, proves nothing about the next request.
  if (code == Code::disk_full || code == Code::unsupported) return 0;
  ++failures_;
  if (backs_off_ ? !probe : failures_ < kFailuresToBackOff && !is_refusal(code)) return 0;
  back_off_ns_ = back_off_ns_ == 0 ? kFirstBackOffNs : std::min(back_off_ns_ * 2, kLongestBackOffNs);
  back_until_ = now + back_off_ns_;
  trouble_ = message.empty() ? code_text(code) : message;
  if (backs_off_) return 0;
  backs_off_ = true;
  ++stats_.back_offs;
  refuses_.store(true, std::memory_order_release);
  return 1;
}

void Requests::tell(int change) {
  if (change != 0 && on_back_off_) on_back_off_(change > 0, trouble());
}

bool Requests::backs_off() const noexcept { return refuses_.load(std::memory_order_acquire); }

bool Requests::has_spare() const {
  MutexLock lock(mutex_);
  return urgent_.empty() && others_.empty() && 2 * in_flight_.size() < std::max(1U, store_.facts().concurrency);
}

std::string Requests::trouble() const {
  MutexLock lock(mutex_);
  return trouble_;
}

StoreStats Requests::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

void Requests::shutdown(UniqueFunction<void(bool)> done) {
  std::deque<CallRef> queued;
  std::map<uint64_t, CallRef> in_flight;
  std::map<uint64_t, bool> running;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    idle_ = std::move(done);
    queued.swap(urgent_);
    queued.insert(queued.end(), others_.begin(), others_.end());
    others_.clear();
    in_flight = in_flight_;
    running = running_;
    ++calling_;
  }
  for (const CallRef& call : queued) end(call, Code::closed, std::move(call->request));
  for (const auto& [id, call] : in_flight) store_.cancel(id);
  for (const auto& [id, given_up] : running) store_.cancel(id);
  called();
  executor_.post_at(executor_.clock().now_ns() + kCloseNs, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    std::map<uint64_t, CallRef> left;
    {
      MutexLock lock(self->mutex_);
      left = self->in_flight_;
      self->leaves_ = true;
    }
    for (const auto& [id, call] : left) self->give_up(call);
    self->end_if_idle();
  });
  end_if_idle();
}

void Requests::called() {
  {
    MutexLock lock(mutex_);
    --calling_;
  }
  end_if_idle();
}

void Requests::end_if_idle() {
  UniqueFunction<void(bool)> idle;
  bool all = false;
  {
    MutexLock lock(mutex_);
    all = in_flight_.empty() && running_.empty() && waiting_ == 0 && calling_ == 0;
    if (!idle_ || telling_ != 0 || (!all && !leaves_)) return;
    left_ = true;
    idle = std::move(idle_);
    idle_ = {};
  }
  executor_.post([all, held = std::make_shared<UniqueFunction<void(bool)>>(std::move(idle))] { (*held)(all); });
}

}  // namespace kvbm::tier::store
