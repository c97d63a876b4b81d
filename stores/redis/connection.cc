#include "connection.h"

#include <sys/epoll.h>

#include <algorithm>

namespace kvbm_redis {
namespace {

constexpr unsigned kGreeting = 1;
constexpr unsigned kGreetingIgnored = 2;
constexpr unsigned kGreetingLast = 3;
constexpr auto kSilence = std::chrono::seconds(5);
constexpr auto kSilenceAfterGivenUp = std::chrono::seconds(1);
constexpr size_t kBuffer = 64 << 10;
constexpr size_t kBytesAtATime = 8 << 20;  // limit, so that the other connections have their turn
constexpr int kPieces = 64;

OwnedCommand greeting(unsigned tag, std::initializer_list<std::string_view> words) {
  auto command = std::make_unique<Command>();
  command->tag = tag;
  append_request(&command->head, words);
  return command;
}

}  // namespace

void Connection::open(const Endpoint& endpoint, size_t number, const std::string& host) {
  endpoint_ = number;
  state_ = State::connecting;
  progress_ = Clock::now();
  watched_ = 0;
  load_ = sent_of_first_ = 0;
  is_reading_ = has_given_up_ = false;
  skipped_ = 0;
  skipped_error_ = Reply();
  if (!stream_.open(endpoint, host, tls_)) return fail("cannot connect to ");
  on_event();
}

void Connection::fail(const std::string& what) {
  if (stream_.is_refused() && state_ != State::ready) {
    return close({KVBM_ERR_CONFIG,
                  "no TLS with " + where_ + ": " + stream_.error() + "; see ca, cert and verify, or write redis://",
                  false, true});
  }
  // A server that requires a certificate often resets the connection before its reason is read.
  const bool may_want = tls_ != nullptr && state_ == State::greeting && settings_->cert_file.empty();
  close({KVBM_ERR_IO,
         what + where_ + ": " + stream_.error() + (may_want ? "; if it wants a certificate, set cert and key" : ""),
         false, true});
}

void Connection::close(const Verdict& why) {
  if (state_ == State::closed) return;
  const bool was_ready = state_ == State::ready;
  state_ = State::closed;
  stream_.close();  // epoll forgets the descriptor
  std::deque<OwnedCommand> lost;
  lost.swap(sent_);
  for (OwnedCommand& command : unsent_) lost.push_back(std::move(command));
  unsent_.clear();
  load_ = 0;
  for (OwnedCommand& command : lost) {
    command->connection = nullptr;
    if (command->op != nullptr) listener_->lost(std::move(command), why);
  }
  listener_->closed(*this, why, was_ready);
}

void Connection::greet() {
  state_ = State::greeting;
  if (!settings_->user.empty()) {
    push(greeting(kGreeting, {"AUTH", settings_->user, settings_->password}));
  } else if (!settings_->password.empty()) {
    push(greeting(kGreeting, {"AUTH", settings_->password}));
  }
  if (settings_->db != 0) push(greeting(kGreeting, {"SELECT", std::to_string(settings_->db)}));
  push(greeting(kGreetingIgnored, {"CLIENT", "SETNAME", "kvbm"}));
  push(greeting(kGreetingLast, {"PING"}));
  flush();
}

void Connection::greeted(Command& command, const Reply& reply) {
  const bool may_ping = !reply.text.starts_with("NOPERM");  // the answers that follow show what is permitted
  if (reply.is(Reply::Type::error) && command.tag != kGreetingIgnored && (command.tag != kGreetingLast || may_ping)) {
    return close(judge_error(reply.text, where_));
  }
  if (command.tag != kGreetingLast) return;
  state_ = State::ready;
  listener_->opened(*this);
}

void Connection::push(OwnedCommand command) {
  if (commands() == 0) progress_ = Clock::now();
  command->connection = this;
  load_ += command->load();
  unsent_.push_back(std::move(command));
}

bool Connection::detach(Command* command) {
  command->op = nullptr;
  if (state_ == State::closed) return false;  // close() is just returning it through lost()
  const auto found =
      std::find_if(unsent_.begin(), unsent_.end(), [&](const auto& one) { return one.get() == command; });
  if (found == unsent_.end()) {
    has_given_up_ = true;
    if (is_reading_ && answered() == command) reader_.forget_memory();
    command->into = nullptr;
    return false;
  }
  if (found != unsent_.begin() || sent_of_first_ == 0) {
    load_ -= command->load();
    unsent_.erase(found);
    return false;
  }
  command->into = nullptr;
  // The rest of the data must not be read, and nothing else may stand in for it.
  return command->data != nullptr && sent_of_first_ < command->head.size() + command->bytes;
}

void Connection::on_event() {
  if (state_ == State::closed) return;
  if (state_ == State::connecting) {
    const int result = stream_.connect();
    if (result < 0) return fail("cannot connect to ");
    if (result == 0) return watch();
    greet();
    if (state_ == State::closed) return;
  }
  receive();
  flush();
}

void Connection::flush() {
  while (state_ >= State::greeting && !unsent_.empty()) {
    iovec pieces[kPieces];
    int n = 0;
    uint64_t skip = sent_of_first_;
    const auto add = [&](const char* data, uint64_t bytes) {
      const uint64_t gone = std::min(skip, bytes);
      skip -= gone;
      if (bytes > gone) pieces[n++] = {const_cast<char*>(data) + gone, bytes - gone};
    };
    for (const OwnedCommand& command : unsent_) {
      if (n + 3 > kPieces) break;
      add(command->head.data(), command->head.size());
      if (command->data == nullptr) continue;
      add(command->data, command->bytes);
      add(command->tail.data(), command->tail.size());
    }
    const ssize_t written = stream_.write(pieces, n);
    if (written < 0) return fail("");
    if (written == 0) break;
    progress_ = Clock::now();
    sent_of_first_ += static_cast<uint64_t>(written);
    while (!unsent_.empty() && sent_of_first_ >= unsent_.front()->sent_bytes()) {
      sent_of_first_ -= unsent_.front()->sent_bytes();
      sent_.push_back(std::move(unsent_.front()));
      unsent_.pop_front();
    }
  }
  watch();
}

// Registers with epoll the events that the connection waits for.
void Connection::watch() {
  if (state_ == State::closed) return;
  const bool writes = stream_.wants_write() || (state_ >= State::greeting && !unsent_.empty());
  const uint32_t wanted = EPOLLIN | (writes ? static_cast<uint32_t>(EPOLLOUT) : 0U);
  if (wanted == watched_) return;
  epoll_event event = {};
  event.events = wanted;
  event.data.ptr = this;
  if (::epoll_ctl(epoll_, watched_ == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, stream_.fd(), &event) == 0) watched_ = wanted;
}

void Connection::receive() {
  static thread_local char buffer[kBuffer];
  for (size_t total = 0; total < kBytesAtATime || stream_.has_pending();) {
    iovec pieces[2];
    int n = 0;
    size_t room = 0;
    if (char* direct = is_reading_ ? reader_.direct(&room) : nullptr; direct != nullptr) pieces[n++] = {direct, room};
    pieces[n++] = {buffer, sizeof buffer};
    const ssize_t got = stream_.read(pieces, n);
    if (got < 0) return fail("");
    if (got == 0) return;
    progress_ = Clock::now();
    total += static_cast<size_t>(got);
    const size_t placed = n == 2 ? std::min(static_cast<size_t>(got), room) : 0;
    if (placed > 0) reader_.filled(placed);
    const size_t left = static_cast<size_t>(got) - placed;
    if (left > 0 && !consume(buffer, left)) return;
    if (tls_ == nullptr && static_cast<size_t>(got) < room + sizeof buffer) return;  // the socket is empty
  }
}

// Returns the command that the next answer belongs to. The first answers of a command may arrive before all of its
// data is sent.
Command* Connection::answered() const {
  if (!sent_.empty()) return sent_.front().get();
  const bool may_come = sent_of_first_ > 0 && skipped_ < unsent_.front()->skipped;
  return may_come ? unsent_.front().get() : nullptr;
}

bool Connection::consume(const char* data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    if (!is_reading_) {
      const Command* const command = answered();
      if (command == nullptr) {
        // This is an error without a request: the server is about to close the connection.
        reader_.begin(nullptr, 0, 4096);
        reader_.feed(data + at, bytes - at);
        const bool is_error = reader_.is_whole() && reader_.reply().is(Reply::Type::error);
        close(is_error ? judge_error(reader_.reply().text, where_)
                       : judge_garbage(std::string_view(data + at, bytes - at), where_, tls_ != nullptr));
        return false;
      }
      reader_.begin(command->into, skipped_ == command->skipped ? command->room : 0, command->limit);
      is_reading_ = true;
    }
    at += reader_.feed(data + at, bytes - at);
    if (reader_.is_broken()) {
      close(
          state_ == State::greeting
              ? judge_garbage(reader_.broken_line(), where_, tls_ != nullptr)
              : Verdict{KVBM_ERR_IO, where_ + ": an answer cannot be read, or is longer than asked for", false, false});
      return false;
    }
    if (reader_.is_whole() && !end_reply()) return false;
  }
  return true;
}

bool Connection::end_reply() {
  is_reading_ = false;
  Reply& reply = reader_.reply();
  Command* const asked = answered();
  if (skipped_ < asked->skipped) {
    if (reply.is(Reply::Type::error) && !skipped_error_.is(Reply::Type::error)) skipped_error_ = std::move(reply);
    ++skipped_;
    return true;
  }
  skipped_ = 0;
  if (skipped_error_.is(Reply::Type::error)) reply = std::move(skipped_error_);
  skipped_error_ = Reply();
  OwnedCommand command = std::move(sent_.front());
  sent_.pop_front();
  load_ -= command->load();
  if (sent_.empty()) has_given_up_ = false;
  if (state_ == State::greeting) {
    greeted(*command, reply);
  } else if (command->op != nullptr) {
    command->connection = nullptr;
    listener_->replied(*this, std::move(command), reply);
  }
  return state_ != State::closed;
}

void Connection::tick(Clock::time_point now) {
  if (state_ == State::closed || (state_ == State::ready && commands() == 0)) return;
  const auto silent = now - progress_;
  if (silent > kSilence || (has_given_up_ && silent > kSilenceAfterGivenUp)) {
    const bool no_tls = tls_ != nullptr && state_ == State::connecting;
    close({KVBM_ERR_DEADLINE,
           no_tls ? "no TLS from " + where_ + ": is it redis:// there?" : "no answer of " + where_ + " in time", false,
           false});
  }
}

}  // namespace kvbm_redis
