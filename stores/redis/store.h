// A database of a server, or a cluster. Runs many operations at a time on one thread.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "operation.h"

namespace kvbm_redis {

// A server, with its connections.
struct Node {
  Address address;
  std::vector<std::unique_ptr<Connection>> connections;
  std::deque<OwnedCommand> waiting;
  std::shared_ptr<Lookup> lookup;  // lookup in progress
  std::vector<Endpoint> endpoints;
  size_t next_endpoint = 0;  // in use, or tried next
  unsigned failures = 0;
  Clock::time_point retry_at;
  Verdict why;            // reason why it could not be reached
  uint64_t found_in = 0;  // turn of the event thread in which it was last looked for
};

class Store final : public Services, public Connection::Listener {
 public:
  // `config` must outlive the store.
  Store(Settings settings, std::unique_ptr<Tls> tls, const kvbm_store_config_t* config);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Returns whether the store can be used. KVBM_OK also if no server answers.
  Verdict probe(uint64_t timeout_ns);
  void start(kvbm_store_op_t* const* ops, size_t n);
  void cancel(kvbm_store_op_t* op);

  void send(OwnedCommand command) override { outbox_.push_back(std::move(command)); }
  void finish(Operation& operation, const Verdict& verdict) override;
  void prune(const std::string& name) override;
  bool learn_slots(const Reply& reply, const Connection* from) override;
  std::string new_token() override;
  [[nodiscard]] const Settings& settings() const override { return settings_; }

  void opened(Connection& connection) override;
  void replied(Connection& connection, OwnedCommand command, Reply& reply) override;
  void lost(OwnedCommand command, const Verdict& why) override;
  void closed(Connection& connection, const Verdict& why, bool was_ready) override;

 private:
  using Owned = std::unique_ptr<Operation>;

  void wake() const;
  void log(int32_t level, const std::string& text) const { config_->log(config_->context, level, text.c_str()); }
  // Runs the event thread.
  void run();
  void take_incoming();
  void begin(Owned operation);
  void begin_own(Operation::Own own, const std::string& name, std::chrono::seconds time);
  void end_overdue(Clock::time_point now);
  void route_all();
  Node* node_of(const Command& command);
  // Returns the server, which is added if it is new. Null if there are too many that are in use.
  Node* find_node(const Address& address);
  [[nodiscard]] bool is_used(const Node& node) const;
  bool retire_node();
  void dispatch(Node& node, Clock::time_point now);
  // Connects to a server. Returns whether connections may still open.
  bool connect(Node& node, Clock::time_point now);
  Connection* least_loaded(Node& node);
  void give_up(OwnedCommand command, const Verdict& why);
  bool follow(OwnedCommand& command, const std::string& error, const Connection& connection);
  void refresh_slots();
  int wait_ms(Clock::time_point now) const;

  const Settings settings_;
  const std::unique_ptr<Tls> tls_;
  const kvbm_store_config_t* const config_;
  int epoll_ = -1;
  int wake_fd_ = -1;

  std::mutex mutex_;
  std::vector<Owned> incoming_;
  std::vector<kvbm_store_op_t*> cancelled_;
  std::unordered_map<kvbm_store_op_t*, Operation*> of_op_;  // until they are finished
  bool is_stopping_ = false;

  // Used by the event thread alone.
  std::unordered_map<Operation*, Owned> running_;
  std::vector<Owned> ended_;  // freed when no caller up the stack uses them
  std::set<std::pair<Clock::time_point, Operation*>> deadlines_;
  std::deque<OwnedCommand> outbox_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Node>> retired_;  // freed like ended_
  uint64_t turn_ = 1;
  size_t entry_ = 0;          // index in settings_.addresses, which are the first nodes
  std::vector<Node*> slots_;  // empty: no cluster
  Clock::time_point refreshed_at_;
  Clock::time_point ticked_at_;
  size_t prunes_ = 0;
  uint64_t token_seed_[2] = {};
  Operation* probe_ = nullptr;
  std::function<void(const Verdict&, const std::string& note)> on_probed_;

  std::thread thread_;
};

}  // namespace kvbm_redis
