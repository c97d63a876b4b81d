// A connection to a server. Replies arrive in the order of the requests.
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

// Requests that are sent together to one server. One of their answers counts.
struct Command {
  Operation* op = nullptr;     // null: nothing waits for the answer (any more)
  unsigned tag = 0;            // the operation's own
  std::string key;             // key that selects the server of a cluster; "": any server
  std::string head;            // the requests, up to the data
  const char* data = nullptr;  // the caller's
  std::string tail = "\r\n";   // follows the data
  uint64_t bytes = 0;
  unsigned skipped = 0;  // answers before the one that counts; the first error among them counts instead
  char* into = nullptr;  // buffer for the value in the answer
  uint64_t room = 0;
  size_t limit = 64 << 10;  // of any other answer

  // Routing of the command.
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
    // Returns each command without an answer, before closed() reports that the connection is closed.
    virtual void lost(OwnedCommand command, const Verdict& why) = 0;
    virtual void closed(Connection& connection, const Verdict& why, bool was_ready) = 0;

   protected:
    ~Listener() = default;
  };

  Connection(Listener* listener, Node* node, std::string where, const Settings* settings, const Tls* tls, int epoll)
      : listener_(listener), node_(node), where_(std::move(where)), settings_(settings), tls_(tls), epoll_(epoll) {}

  // `number` is the endpoint's index, which endpoint() returns.
  void open(const Endpoint& endpoint, size_t number, const std::string& host);
  void close(const Verdict& why);
  void push(OwnedCommand command);
  // Detaches a command of which the operation has ended. The connection must not touch any of its memory from here
  // on. Returns true if the connection must be closed for that before any other use.
  [[nodiscard]] bool detach(Command* command);
  void on_event();
  // Writes as much as the socket takes.
  void flush();
  // Closes the connection if the server is silent for too long.
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
  void fail(const std::string& what);  // `what` begins the message, such as "cannot connect to "
  void receive();
  [[nodiscard]] Command* answered() const;
  // Reads received bytes. Returns false if the connection is closed.
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
  unsigned skipped_ = 0;     // answers to that command that have arrived
  Reply skipped_error_;
  bool has_given_up_ = false;  // an operation gave up a command in sent_
  Clock::time_point progress_;
};

}  // namespace kvbm_redis
