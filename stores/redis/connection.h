// A connection to a server: requests one behind the other, replies in the same order.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>

#include "answers.h"
#include "reply.h"
#include "stream.h"

namespace kvbm_redis {

using Clock = std::chrono::steady_clock;

class Connection;
class Operation;
struct Node;

// Requests that are sent together to one server, and one answer that counts.
struct Command {
  Operation* op = nullptr;  // null: nothing waits for the answer (any more)
  unsigned tag = 0;         // the operation's own
  std::string key;          // decides which server of a cluster; "": any
  std::string head;         // the requests, up to where the data begins
  const char* data = nullptr;  // the caller's
  std::string tail = "\r\n";   // follows the data
  uint64_t bytes = 0;
  unsigned skipped = 0;  // answers before the one that counts; the first error among them counts instead
  char* into = nullptr;  // where the value goes that is answered, and at most how much
  uint64_t room = 0;
  size_t limit = 64 << 10;  // of any other answer

  // Of its way.
  Connection* connection = nullptr;
  Node* node = nullptr;
  unsigned attempts = 0;
  unsigned redirects = 0;
  bool is_asking = false;

  [[nodiscard]] uint64_t load() const { return head.size() + bytes + room + 256; }
  [[nodiscard]] uint64_t sent_bytes() const { return head.size() + (data == nullptr ? 0 : bytes + tail.size()); }
};
using OwnedCommand = std::unique_ptr<Command>;

class Connection {
 public:
  class Listener {
   public:
    virtual void opened(Connection& connection) = 0;
    virtual void replied(Connection& connection, OwnedCommand command, Reply& reply) = 0;
    // The connection is closed; first each command whose answer has not come is given back.
    virtual void lost(OwnedCommand command, const Verdict& why) = 0;
    virtual void closed(Connection& connection, const Verdict& why, bool was_ready) = 0;

   protected:
    ~Listener() = default;
  };

  Connection(Listener* listener, Node* node, std::string where, const Settings* settings, const Tls* tls, int epoll)
      : listener_(listener), node_(node), where_(std::move(where)), settings_(settings), tls_(tls), epoll_(epoll) {}

  // `number`: of the endpoint, told again by endpoint().
  void open(const Endpoint& endpoint, size_t number, const std::string& host);
  void close(const Verdict& why);
  void push(OwnedCommand command);
  // Its operation has ended, and none of its memory may be touched any more. True: for that the connection has to be closed
  // before anything else is done with it.
  [[nodiscard]] bool detach(Command* command);
  void on_event();
  // Writes what can be written.
  void flush();
  // Closes it if the server is silent for too long.
  void tick(Clock::time_point now);

  [[nodiscard]] bool is_ready() const { return state_ == State::ready; }
  [[nodiscard]] bool is_closed() const { return state_ == State::closed; }
  [[nodiscard]] uint64_t load() const { return load_; }
  [[nodiscard]] size_t endpoint() const { return endpoint_; }
  [[nodiscard]] size_t commands() const { return unsent_.size() + sent_.size(); }
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] Node& node() const { return *node_; }

 private:
  enum class State : uint8_t { closed, connecting, greeting, ready };

  void greet();
  void greeted(Command& command, const Reply& reply);
  void fail(const std::string& what);  // "cannot connect to "
  void receive();
  [[nodiscard]] Command* answered() const;
  // False: the connection is closed.
  bool consume(const char* data, size_t bytes);
  bool end_reply();
  void watch();

  Listener* const listener_;
  Node* const node_;
  const std::string where_;
  const Settings* const settings_;
  const Tls* const tls_;
  const int epoll_;

  State state_ = State::closed;
  size_t endpoint_ = 0;
  Stream stream_;
  uint32_t watched_ = 0;
  std::deque<OwnedCommand> unsent_;
  std::deque<OwnedCommand> sent_;
  uint64_t sent_of_first_ = 0;
  uint64_t load_ = 0;
  ReplyReader reader_;
  bool is_reading_ = false;  // reader_ has begun the answer to sent_.front()
  unsigned skipped_ = 0;     // answers to it that have come
  Reply skipped_error_;
  bool has_given_up_ = false;  // of a command in sent_
  Clock::time_point progress_;
};

}  // namespace kvbm_redis
