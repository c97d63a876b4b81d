#include "store.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

namespace kvbm_mooncake {
namespace {

constexpr auto kRestart = std::chrono::seconds(1);
// Bytes before an object's own (MARK of client.py), because Mooncake stores no empty object.
constexpr uint64_t kMarkBytes = 1;
constexpr char kGreeting = 'H';

// Layouts of client.py. Both processes run on one machine.
struct RequestHead {
  uint64_t id;
  uint32_t kind;
  uint32_t flags;
  uint64_t place;
  uint64_t bytes;
  uint64_t offset;
};
struct AnswerHead {
  uint64_t id;  // 0: a line for the log
  uint32_t status;
  uint32_t more;
  uint64_t done;
};
static_assert(sizeof(RequestHead) == 40 && sizeof(AnswerHead) == 24);
constexpr size_t kMostAnswer = 1024;

constexpr kvbm_status_t kStatuses[] = {KVBM_OK,     KVBM_ERR_MISS,     KVBM_ERR_AGAIN,
                                       KVBM_ERR_IO, KVBM_ERR_DEADLINE, KVBM_ERR_DISK_FULL};

Clock::time_point end_of(uint64_t timeout_ns) {
  constexpr auto kMost = std::chrono::hours(24);
  const auto most = static_cast<uint64_t>(std::chrono::nanoseconds(kMost).count());
  return Clock::now() + std::chrono::nanoseconds(std::min(timeout_ns, most));
}

bool is_name(const char* name) {
  return name != nullptr && ::strnlen(name, KVBM_STORE_NAME_BYTES + 1) <= KVBM_STORE_NAME_BYTES;
}

}  // namespace

Store::Store(Settings settings, const kvbm_store_config_t& config)
    : settings_(std::move(settings)),
      config_(config),
      memory_(settings_.memory_bytes),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw std::bad_alloc();
}

Store::~Store() {
  if (thread_.joinable()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stops_ = true;
    }
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  helper_.end();
}

// Starts the helper and waits for its greeting. A slow helper is waited for later, like a server that cannot be
// reached now.
std::string Store::open(uint64_t timeout_ns) {
  const Clock::time_point end = end_of(timeout_ns);
  if (!start_helper()) return refusal_;
  while (!is_greeted_ && refusal_.empty() && helper_.runs()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd one = {helper_.socket(), POLLIN, 0};
    if (left <= 0 || ::poll(&one, 1, static_cast<int>(left)) == 0) break;
    receive();
  }
  if (!refusal_.empty()) return refusal_;
  // Blocks all signals while the thread is made, because a thread inherits the mask: the program's signal handlers must
  // run on the program's own threads only.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

void Store::start(kvbm_store_op_t* const* ops, size_t n) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < n; ++i) {
      const uint64_t id = ++last_id_;
      ops[i]->store_private = reinterpret_cast<void*>(static_cast<uintptr_t>(id));
      incoming_.push_back({id, ops[i], end_of(ops[i]->timeout_ns)});
    }
  }
  ::eventfd_write(wake_.get(), 1);
}

void Store::cancel(const kvbm_store_op_t* op) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled_.push_back(reinterpret_cast<uintptr_t>(op->store_private));
  }
  ::eventfd_write(wake_.get(), 1);
}

void Store::finish(kvbm_store_op_t* op, kvbm_status_t status, const char* why) {
  if (status != KVBM_OK) std::snprintf(op->message, sizeof op->message, "%s", why);
  config_.finished(config_.context, op, status);
}

// ----------------------------------------------------------------- the thread

void Store::run() {
  for (;;) {
    take_calls();
    end_overdue();
    if (!helper_.runs() && Clock::now() >= start_again_ && !waiting_.empty()) start_helper();
    send_waiting();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stops_ && incoming_.empty() && waiting_.empty()) return;
    }
    wait();
    if (helper_.runs()) receive();
  }
}

void Store::take_calls() {
  std::vector<uint64_t> cancelled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.insert(waiting_.end(), incoming_.begin(), incoming_.end());
    incoming_.clear();
    cancelled.swap(cancelled_);
  }
  for (const uint64_t id : cancelled) give_up(id, "it was given up");
}

void Store::end_overdue() {
  const auto now = Clock::now();
  std::vector<uint64_t> overdue;
  for (const Waiting& one : waiting_) {
    if (one.end <= now) overdue.push_back(one.id);
  }
  for (const auto& [id, flight] : flights_) {
    if (flight.op != nullptr && flight.end <= now) overdue.push_back(id);
  }
  for (const uint64_t id : overdue) give_up(id, "Mooncake did not answer in time");
}

void Store::give_up(uint64_t id, const char* why) {
  const auto waits = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& one) { return one.id == id; });
  if (waits != waiting_.end()) {
    kvbm_store_op_t* const op = waits->op;
    waiting_.erase(waits);
    return finish(op, KVBM_ERR_DEADLINE, refusal_.empty() ? why : refusal_.c_str());
  }
  const auto flies = flights_.find(id);
  if (flies == flights_.end() || flies->second.op == nullptr) return;
  finish(std::exchange(flies->second.op, nullptr), KVBM_ERR_DEADLINE, why);
}

void Store::send_waiting() {
  while (!waiting_.empty()) {
    const Waiting one = waiting_.front();
    const kvbm_store_op_t& op = *one.op;
    const bool is_known = op.kind >= KVBM_STORE_PUT && op.kind <= KVBM_STORE_LIST;
    if (!is_known || !is_name(op.name) || (op.kind == KVBM_STORE_LIST && !is_name(op.after)) ||
        (op.kind == KVBM_STORE_PUT && op.bytes > max_object_bytes())) {
      waiting_.pop_front();
      finish(one.op, KVBM_ERR_CONFIG, "it is no operation, or the object is too large: raise memory");
      continue;
    }
    if (!is_greeted_ && !refusal_.empty()) {
      waiting_.pop_front();
      finish(one.op, KVBM_ERR_IO, refusal_.c_str());
      continue;
    }
    if (!is_greeted_ || is_full_ || !send(one)) return;
    waiting_.pop_front();
  }
}

// Sends an operation to the helper. Returns false if there is no space for it now.
bool Store::send(const Waiting& one) {
  const kvbm_store_op_t& op = *one.op;
  Flight flight{one.op, one.end, 0, 0, op.kind != KVBM_STORE_REMOVE};
  if (op.kind == KVBM_STORE_PUT) flight.bytes = op.bytes + kMarkBytes;
  // No object is larger than this limit.
  if (op.kind == KVBM_STORE_GET) flight.bytes = std::min(op.bytes, max_object_bytes());
  if (op.kind == KVBM_STORE_LIST) flight.bytes = std::min(op.bytes, uint64_t{1} << 20);
  if (flight.has_memory) {
    const auto place = memory_.take(std::max<uint64_t>(flight.bytes, 1));
    if (!place) return false;
    flight.place = *place;
  }
  if (op.kind == KVBM_STORE_PUT) {
    *memory_.at(flight.place) = 1;
    if (op.bytes != 0) std::memcpy(memory_.at(flight.place + kMarkBytes), op.data, op.bytes);
  }
  const RequestHead head = {one.id, op.kind, op.flags, flight.place, flight.bytes, op.offset};
  char message[sizeof head + 2 * (KVBM_STORE_NAME_BYTES + 1)];
  std::memcpy(message, &head, sizeof head);
  size_t length = sizeof head;
  for (const char* text : {op.name, op.kind == KVBM_STORE_LIST ? op.after : ""}) {
    const size_t n = std::strlen(text) + 1;
    std::memcpy(message + length, text, n);
    length += n;
  }
  if (::send(helper_.socket(), message, length, MSG_DONTWAIT | MSG_NOSIGNAL) != static_cast<ssize_t>(length)) {
    is_full_ = true;  // or the helper has ended, which receive() finds
    if (flight.has_memory) memory_.give(flight.place);
    return false;
  }
  flights_.emplace(one.id, flight);
  return true;
}

void Store::receive() {
  char message[kMostAnswer];
  for (;;) {
    const ssize_t n = ::recv(helper_.socket(), message, sizeof message - 1, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return helper_is_gone();
    message[n] = '\0';
    if (is_greeted_) {
      answered(message, static_cast<size_t>(n));
    } else if (message[0] == kGreeting) {
      greeted(message + 1);
    }
  }
}

void Store::greeted(const std::string& sentence) {
  if (!sentence.empty() && sentence != refusal_) config_.log(config_.context, 1, sentence.c_str());
  refusal_ = sentence;
  is_greeted_ = sentence.empty();
}

void Store::answered(const char* message, size_t length) {
  AnswerHead head;
  if (length < sizeof head) return;
  std::memcpy(&head, message, sizeof head);
  const char* const text = message + sizeof head;
  if (head.id == 0) return config_.log(config_.context, static_cast<int32_t>(head.status), text);
  const auto found = flights_.find(head.id);
  if (found == flights_.end()) return;
  const Flight flight = found->second;
  flights_.erase(found);
  if (flight.op != nullptr) {
    kvbm_store_op_t& op = *flight.op;
    kvbm_status_t status = head.status < std::size(kStatuses) ? kStatuses[head.status] : KVBM_ERR_IO;
    const bool reads = op.kind == KVBM_STORE_GET || op.kind == KVBM_STORE_LIST;
    const char* why = text;
    if (status == KVBM_OK && reads && head.done > flight.bytes) {
      status = KVBM_ERR_IO;
      why = "Mooncake's client gave more bytes than were asked for";
    }
    if (status == KVBM_ERR_MISS && op.kind != KVBM_STORE_GET) status = KVBM_ERR_IO;
    if (status == KVBM_OK && reads) {
      if (head.done != 0) std::memcpy(op.data, memory_.at(flight.place), head.done);
      op.done = head.done;
      op.more = op.kind == KVBM_STORE_LIST && head.more != 0 ? 1 : 0;
    }
    finish(&op, status, why);
  }
  if (flight.has_memory) memory_.give(flight.place);
}

void Store::helper_is_gone() {
  helper_.kill();
  start_again_ = Clock::now() + kRestart;
  // A helper that refused its settings has logged the reason and ended.
  if (is_greeted_ || refusal_.empty()) {
    refusal_ = "Mooncake's client has ended by itself; the option log= keeps what it says";
    config_.log(config_.context, 1, refusal_.c_str());
  }
  is_greeted_ = false;
  is_full_ = false;
  for (const auto& [id, flight] : flights_) {
    if (flight.has_memory) memory_.give(flight.place);
    if (flight.op != nullptr) finish(flight.op, KVBM_ERR_IO, refusal_.c_str());
  }
  flights_.clear();
}

bool Store::start_helper() {
  const std::string wrong = helper_.start(settings_.python, settings_.arguments(), settings_.log, memory_.file());
  start_again_ = Clock::now() + kRestart;
  refusal_ = wrong;
  return wrong.empty();
}

void Store::wait() {
  auto end = Clock::now() + std::chrono::hours(1);
  for (const Waiting& one : waiting_) end = std::min(end, one.end);
  for (const auto& [id, flight] : flights_) {
    if (flight.op != nullptr) end = std::min(end, flight.end);
  }
  if (!helper_.runs() && !waiting_.empty()) end = std::min(end, start_again_);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  const short events = is_full_ ? POLLIN | POLLOUT : POLLIN;
  pollfd both[] = {{wake_.get(), POLLIN, 0}, {helper_.socket(), events, 0}};
  ::poll(both, helper_.runs() ? 2 : 1, static_cast<int>(std::max<int64_t>(left, 0)));
  if ((both[1].revents & POLLOUT) != 0) is_full_ = false;
  eventfd_t count = 0;
  if ((both[0].revents & POLLIN) != 0) (void)::eventfd_read(wake_.get(), &count);
}

}  // namespace kvbm_mooncake
