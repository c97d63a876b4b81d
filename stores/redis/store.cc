#include "store.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <new>
#include <system_error>

namespace kvbm_redis {
namespace {

constexpr size_t kSlots = 16384;
constexpr size_t kMostNodes = 1024;
constexpr unsigned kMostAttempts = 5;
constexpr unsigned kMostRedirects = 8;
constexpr size_t kMostPrunes = 64;
// Limit on bytes in transit on one connection. With less, the server waits for this client. With more, a lost
// connection costs more.
constexpr uint64_t kMostLoad = 4 << 20;
constexpr size_t kMostCommands = 64;
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kLongest = std::chrono::hours(24 * 365);

}  // namespace

Store::Store(Settings settings, std::unique_ptr<Tls> tls, const kvbm_store_config_t* config)
    : settings_(std::move(settings)), tls_(std::move(tls)), config_(config) {
  if (::getrandom(token_seed_, sizeof token_seed_, 0) != sizeof token_seed_)
    throw std::system_error(errno, std::generic_category());
  for (const Address& address : settings_.addresses) find_node(address);
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event = {};
  event.events = EPOLLIN;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    if (epoll_ < 0 || wake_fd_ < 0 || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_fd_, &event) != 0) {
      throw std::system_error(errno, std::generic_category());
    }
    for (auto& node : nodes_) {
      for (unsigned i = 0; i < settings_.connections; ++i) {
        node->connections.push_back(
            std::make_unique<Connection>(this, node.get(), node->address.text(), &settings_, tls_.get(), epoll_));
      }
    }
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "kvbm-redis");
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::close(epoll_);
    ::close(wake_fd_);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Store::~Store() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
  }
  wake();
  thread_.join();
  ::close(epoll_);
  ::close(wake_fd_);
}

void Store::wake() const {
  const uint64_t one = 1;
  if (::write(wake_fd_, &one, sizeof one) < 0) {
    // The eventfd is full, so the thread is awake.
  }
}

// ---------------------------------------------------------------- any thread

void Store::start(kvbm_store_op_t* const* ops, size_t n) {
  const auto now = Clock::now();
  for (size_t i = 0; i < n; ++i) {
    ops[i]->done = 0;
    ops[i]->more = 0;
    try {
      auto operation = std::make_unique<Operation>(this, ops[i]);
      operation->deadline =
          now + std::min<Clock::duration>(kLongest,
                                          std::chrono::nanoseconds(std::min<uint64_t>(ops[i]->timeout_ns, INT64_MAX)));
      const std::lock_guard<std::mutex> lock(mutex_);
      incoming_.reserve(incoming_.size() + 1);
      of_op_[ops[i]] = operation.get();
      incoming_.push_back(std::move(operation));
    } catch (const std::bad_alloc&) {
      config_->finished(config_->context, ops[i], KVBM_ERR_AGAIN);
    }
  }
  wake();
}

void Store::cancel(kvbm_store_op_t* op) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = of_op_.find(op);
    if (found == of_op_.end()) return;
    found->second->is_cancelled = true;
    cancelled_.push_back(op);
  }
  wake();
}

Verdict Store::probe(uint64_t timeout_ns) {
  std::promise<std::pair<Verdict, std::string>> ended;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    on_probed_ = [&](const Verdict& verdict, const std::string& note) { ended.set_value({verdict, note}); };
    auto operation = std::make_unique<Operation>(this, nullptr, Operation::Own::probe);
    operation->deadline = Clock::now() + std::chrono::nanoseconds(std::min<uint64_t>(timeout_ns, INT64_MAX / 4));
    probe_ = operation.get();
    incoming_.push_back(std::move(operation));
  }
  wake();
  auto [verdict, note] = ended.get_future().get();
  const std::string place = settings_.description();
  if (!note.empty()) log(1, "Redis: " + place + ": " + note);
  const bool passes = verdict.status == KVBM_ERR_AGAIN || verdict.status == KVBM_ERR_DEADLINE ||
                      verdict.status == KVBM_ERR_DISK_FULL || verdict.status == KVBM_ERR_IO;
  if (passes) {
    log(1, "Redis: " + place + " cannot be used now: " + verdict.clause);
    return {};
  }
  if (verdict.is_no_redis) verdict.status = KVBM_ERR_UNSUPPORTED;
  return verdict;
}

// ----------------------------------------------------------- the event thread

void Store::run() {
  std::vector<epoll_event> events(64);
  while (true) {
    take_incoming();
    auto now = Clock::now();
    end_overdue(now);
    route_all();
    for (size_t i = 0; i < nodes_.size(); ++i) dispatch(*nodes_[i], now);
    ended_.clear();
    retired_.clear();
    ++turn_;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (is_stopping_ && incoming_.empty()) return;
    }
    const int n =
        ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), outbox_.empty() ? wait_ms(now) : 0);
    for (int i = 0; i < n; ++i) {
      if (events[static_cast<size_t>(i)].data.ptr != nullptr) {
        static_cast<Connection*>(events[static_cast<size_t>(i)].data.ptr)->on_event();
        continue;
      }
      uint64_t count = 0;
      if (::read(wake_fd_, &count, sizeof count) < 0) continue;
    }
    now = Clock::now();
    if (now - ticked_at_ < kTick) continue;
    ticked_at_ = now;
    for (const auto& node : nodes_) {
      for (const auto& connection : node->connections) connection->tick(now);
    }
  }
}

int Store::wait_ms(Clock::time_point now) const {
  bool is_busy = !running_.empty();
  for (const auto& node : nodes_) {
    for (const auto& connection : node->connections) is_busy |= !connection->is_closed() && !connection->is_ready();
    for (const auto& connection : node->connections) is_busy |= connection->commands() > 0;
  }
  auto wait = is_busy ? Clock::duration(kTick) : Clock::duration(std::chrono::hours(1));
  if (!deadlines_.empty()) wait = std::min(wait, deadlines_.begin()->first - now);
  return static_cast<int>(
      std::chrono::ceil<std::chrono::milliseconds>(std::max(wait, Clock::duration::zero())).count());
}

void Store::take_incoming() {
  std::vector<Owned> taken;
  std::vector<Operation*> cancelled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken.swap(incoming_);
    for (kvbm_store_op_t* op : cancelled_) {
      const auto found = of_op_.find(op);
      if (found != of_op_.end() && found->second->is_cancelled) cancelled.push_back(found->second);
    }
    cancelled_.clear();
  }
  for (Owned& operation : taken) begin(std::move(operation));
  for (Operation* operation : cancelled) {
    if (running_.contains(operation)) finish(*operation, {KVBM_ERR_CANCELLED, "given up", false, false});
  }
}

void Store::begin(Owned operation) {
  Operation& one = *operation;
  running_.emplace(&one, std::move(operation));
  deadlines_.emplace(one.deadline, &one);
  if (Clock::now() >= one.deadline) return finish(one, {KVBM_ERR_DEADLINE, "no time was left for it", false, false});
  one.begin();
}

void Store::begin_own(Operation::Own own, const std::string& name, std::chrono::seconds time) {
  auto operation = std::make_unique<Operation>(this, nullptr, own, name);
  operation->deadline = Clock::now() + time;
  begin(std::move(operation));
}

void Store::prune(const std::string& name) {
  if (prunes_ >= kMostPrunes) return;  // the next miss does it
  ++prunes_;
  begin_own(Operation::Own::prune, name, std::chrono::seconds(5));
}

void Store::finish(Operation& operation, const Verdict& verdict) {
  const auto found = running_.find(&operation);
  if (found == running_.end()) return;
  std::vector<Connection*> to_close;
  for (Command* command : operation.commands) {
    if (Connection* const connection = command->connection; connection != nullptr) {
      if (connection->detach(command)) to_close.push_back(connection);
      continue;
    }
    const auto is_it = [&](const OwnedCommand& one) { return one.get() == command; };
    std::deque<OwnedCommand>& queue = command->node != nullptr ? command->node->waiting : outbox_;
    std::erase_if(queue, is_it);
  }
  operation.commands.clear();
  deadlines_.erase({operation.deadline, &operation});
  ended_.push_back(std::move(found->second));
  running_.erase(found);
  if (&operation == probe_) {
    probe_ = nullptr;
    on_probed_(verdict, operation.policy_note);
  }
  if (operation.own() == Operation::Own::prune) --prunes_;
  if (kvbm_store_op_t* const op = operation.op; op != nullptr) {
    if (verdict.status != KVBM_OK) {
      const std::string text = for_people(verdict.clause, sizeof op->message - 1);
      std::memcpy(op->message, text.c_str(), text.size() + 1);
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      of_op_.erase(op);
    }
    config_->finished(config_->context, op, verdict.status);
  }
  for (Connection* connection : to_close)
    connection->close({KVBM_ERR_IO, "an operation on the connection was given up", false, false});
}

void Store::end_overdue(Clock::time_point now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Operation& operation = *deadlines_.begin()->second;
    std::string clause;
    for (const Command* command : operation.commands) {
      if (command->connection != nullptr) clause = "no answer of " + command->connection->where() + " in time";
      // Reason why the command waited.
      if (command->connection == nullptr && command->node != nullptr && command->node->failures > 0)
        clause = command->node->why.clause;
    }
    if (clause.empty()) clause = "no answer of " + settings_.addresses[entry_].text() + " in time";
    finish(operation, {KVBM_ERR_DEADLINE, clause, false, false});
  }
}

std::string Store::new_token() {
  ++token_seed_[1];
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(token_seed_[0]),
                static_cast<unsigned long long>(token_seed_[1]));
  return text;
}

// ------------------------------------------------------------------- servers

Node* Store::find_node(const Address& address) {
  for (const auto& node : nodes_) {
    if (node->address != address) continue;
    node->found_in = turn_;
    return node.get();
  }
  if (nodes_.size() >= kMostNodes && !retire_node()) return nullptr;
  nodes_.push_back(std::make_unique<Node>());
  Node& node = *nodes_.back();
  node.address = address;
  node.found_in = turn_;
  for (unsigned i = 0; epoll_ >= 0 && i < settings_.connections; ++i) {
    node.connections.push_back(
        std::make_unique<Connection>(this, &node, address.text(), &settings_, tls_.get(), epoll_));
  }
  return &node;
}

// A server that was found in this turn may be in a list of slots that is being read.
bool Store::is_used(const Node& node) const {
  const auto waits = [&node](const OwnedCommand& command) { return command->node == &node; };
  return node.found_in == turn_ || !node.waiting.empty() || std::any_of(outbox_.begin(), outbox_.end(), waits) ||
         std::find(slots_.begin(), slots_.end(), &node) != slots_.end() ||
         std::any_of(node.connections.begin(), node.connections.end(),
                     [](const auto& one) { return one->commands() > 0; });
}

// Forgets a server that the URL does not name and that nothing uses: the addresses of a cluster may change often.
bool Store::retire_node() {
  const auto first = nodes_.begin() + static_cast<std::ptrdiff_t>(settings_.addresses.size());
  const auto gone = std::find_if(first, nodes_.end(), [this](const auto& node) { return !is_used(*node); });
  if (gone == nodes_.end()) return false;
  retired_.push_back(std::move(*gone));  // its connections may be up the stack
  nodes_.erase(gone);
  return true;
}

Connection* Store::least_loaded(Node& node) {
  Connection* best = nullptr;
  for (const auto& connection : node.connections) {
    if (connection->is_ready() && (best == nullptr || connection->load() < best->load())) best = connection.get();
  }
  return best;
}

Node* Store::node_of(const Command& command) {
  if (command.node != nullptr) return command.node;  // server that it was redirected to
  if (!slots_.empty()) {
    Node* const owner = command.key.empty() ? nullptr : slots_[slot_of(command.key)];
    if (owner != nullptr) return owner;
    for (const auto& node : nodes_) {
      if (least_loaded(*node) != nullptr) return node.get();
    }
  }
  return nodes_[entry_].get();
}

void Store::route_all() {
  while (!outbox_.empty()) {
    OwnedCommand command = std::move(outbox_.front());
    outbox_.pop_front();
    Node* const node = node_of(*command);
    command->node = node;
    node->waiting.push_back(std::move(command));
  }
}

// Connects to a server. Returns whether a connection exists or may still open.
bool Store::connect(Node& node, Clock::time_point now) {
  if (node.lookup != nullptr && node.lookup->is_done.load(std::memory_order_acquire)) {
    node.endpoints = node.lookup->found;
    node.next_endpoint = 0;
    const std::string error = node.lookup->error;
    node.lookup = nullptr;
    if (node.endpoints.empty()) {
      node.why = {KVBM_ERR_IO, "no address is known of " + node.address.host + ": " + error, false, false};
      node.retry_at = now + std::chrono::milliseconds(500);
    }
  }
  if (node.lookup == nullptr && now >= node.retry_at) {
    if (node.endpoints.empty()) {
      node.lookup = look_up(node.address, wake_fd_);
      if (node.lookup->is_done) return connect(node, now);
    }
    for (const auto& connection : node.connections) {
      if (connection->is_closed() && now >= node.retry_at && !node.endpoints.empty()) {
        connection->open(node.endpoints[node.next_endpoint], node.next_endpoint, node.address.host);
      }
    }
  }
  bool may_come = node.lookup != nullptr;
  for (const auto& connection : node.connections) may_come |= !connection->is_closed();
  return may_come || (!node.endpoints.empty() && now >= node.retry_at);
}

void Store::dispatch(Node& node, Clock::time_point now) {
  if (node.waiting.empty()) return;
  if (!connect(node, now)) {
    std::deque<OwnedCommand> waiting;
    waiting.swap(node.waiting);
    for (OwnedCommand& command : waiting) {
      command->node = nullptr;
      give_up(std::move(command), node.why);
    }
    return;
  }
  while (!node.waiting.empty()) {
    Connection* const connection = least_loaded(node);
    if (connection == nullptr) break;
    OwnedCommand& next = node.waiting.front();
    if (connection->commands() > 0 &&
        (connection->load() + next->load() > kMostLoad || connection->commands() >= kMostCommands))
      break;
    if (next->is_asking) {
      std::string head;
      append_request(&head, {"ASKING"});
      next->head.insert(0, head);  // ASKING is valid for one request or transaction
      ++next->skipped;
      next->is_asking = false;
    }
    connection->push(std::move(next));
    node.waiting.pop_front();
  }
  for (const auto& connection : node.connections) {
    if (connection->is_ready() && connection->commands() > 0) connection->flush();
  }
}

void Store::opened(Connection& connection) {
  Node& node = connection.node();
  if (node.failures > 3) log(2, "Redis: " + connection.where() + " answers again");
  node.failures = 0;
}

void Store::closed(Connection& connection, const Verdict& why, bool was_ready) {
  Node& node = connection.node();
  if (was_ready) {
    if (why.closes) node.endpoints.clear();  // its name may have another address now
    return;
  }
  node.why = why;
  if (node.endpoints.empty() || connection.endpoint() != node.next_endpoint) return;  // the failure is counted already
  if (++node.next_endpoint < node.endpoints.size()) return;  // another address of the same host
  node.endpoints.clear();
  node.failures = std::min(node.failures + 1, 20U);
  const auto now = Clock::now();
  node.retry_at = now + std::chrono::milliseconds(std::min(500U, 20U << std::min(node.failures, 5U)));
  if (slots_.empty() && &node == nodes_[entry_].get()) entry_ = (entry_ + 1) % settings_.addresses.size();
  if (!slots_.empty()) refresh_slots();
}

void Store::lost(OwnedCommand command, const Verdict& why) {
  command->node = nullptr;
  const bool may_try = why.status == KVBM_ERR_IO || why.status == KVBM_ERR_DEADLINE;
  if (may_try && ++command->attempts < kMostAttempts) {
    outbox_.push_back(std::move(command));
  } else {
    give_up(std::move(command), why);
  }
}

void Store::give_up(OwnedCommand command, const Verdict& why) {
  // Tries another of the server's addresses, which may be reachable.
  if (slots_.empty() && command->attempts + 1 < std::min<size_t>(kMostAttempts, settings_.addresses.size() + 1) &&
      settings_.addresses.size() > 1) {
    ++command->attempts;
    outbox_.push_back(std::move(command));
    return;
  }
  Operation& operation = *command->op;
  std::erase(operation.commands, command.get());
  operation.failed(why);
}

void Store::replied(Connection& connection, OwnedCommand command, Reply& reply) {
  Operation& operation = *command->op;
  command->node = nullptr;
  if (reply.is(Reply::Type::error)) {
    if (follow(command, reply.text, connection)) return;
    if (judge_error(reply.text, connection.where()).closes) {  // a master that became a replica
      const bool has_other =
          slots_.empty() && settings_.addresses.size() > 1 && ++command->redirects < settings_.addresses.size() + 1;
      if (has_other) {
        entry_ = (entry_ + 1) % settings_.addresses.size();
        outbox_.push_back(std::move(command));
        return;
      }
      std::erase(operation.commands, command.get());
      operation.server = connection.where();
      operation.replied(*command, reply, connection);
      return connection.close({KVBM_ERR_IO, connection.where() + " is a replica", false, true});
    }
  }
  std::erase(operation.commands, command.get());
  operation.server = connection.where();
  operation.replied(*command, reply, connection);
}

// ------------------------------------------------------------------- cluster

bool Store::follow(OwnedCommand& command, const std::string& error, const Connection& connection) {
  Redirect redirect;
  if (settings_.cluster == Cluster::off || !read_redirect(error, &redirect) || ++command->redirects > kMostRedirects)
    return false;
  Node* const node = find_node({redirect.host.empty() ? connection.node().address.host : redirect.host, redirect.port});
  if (node == nullptr) return false;
  if (slots_.empty()) slots_.assign(kSlots, nullptr);
  command->node = node;
  command->is_asking = redirect.is_ask;
  if (!redirect.is_ask) {
    slots_[redirect.slot] = node;
    refresh_slots();
  }
  outbox_.push_back(std::move(command));
  return true;
}

void Store::refresh_slots() {
  const auto now = Clock::now();
  if (now - refreshed_at_ < std::chrono::seconds(1)) return;
  refreshed_at_ = now;
  begin_own(Operation::Own::slots, {}, std::chrono::seconds(5));
}

bool Store::learn_slots(const Reply& reply, const Connection* from) {
  std::vector<Node*> slots(kSlots, nullptr);
  for (const Reply& range : reply.items) {
    if (range.items.size() < 3 || range.items[2].items.size() < 2) return false;
    const int64_t first = range.items[0].number;
    const int64_t last = range.items[1].number;
    const Reply& host = range.items[2].items[0];
    const int64_t port = range.items[2].items[1].number;
    if (first < 0 || last < first || last >= static_cast<int64_t>(kSlots) || port < 1 || port > 65535 ||
        host.text.size() > 253)
      return false;
    const bool is_same = host.text.empty() || host.text == "?";  // same host as the server that answered
    Node* const node = find_node({is_same ? from->node().address.host : host.text, static_cast<uint16_t>(port)});
    std::fill(slots.begin() + first, slots.begin() + last + 1, node);
  }
  if (slots_.empty()) log(2, "Redis: " + settings_.description() + " is a cluster");
  slots_.swap(slots);
  return true;
}

}  // namespace kvbm_redis
