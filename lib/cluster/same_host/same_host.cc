#include "cluster/same_host/same_host.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/crypto/hmac.h"
#include "copy/local/unix_transport.h"

namespace kvbm::cluster {

namespace {

ConstBytes bytes_of(const HostToken& token) noexcept { return std::as_bytes(std::span(token)); }

}  // namespace

SameHost::SameHost(SameHostOptions options, MappedPools& pools, Random& random, const Log* log, OnDeath on_death)
    : options_(std::move(options)),
      pools_(pools),
      random_(random),
      log_(log),
      refused_(log, "node"),
      on_death_(std::move(on_death)) {}

SameHost::~SameHost() {
  thread_.reset();
  // No process uses this name again.
  if (!options_.socket.empty()) ::unlink((options_.socket + ".lock").c_str());
}

Result<std::unique_ptr<SameHost>> SameHost::create(SameHostOptions options, MappedPools& pools, Random& random,
                                                   const Log* log, OnDeath on_death) {
  std::unique_ptr<SameHost> made(new SameHost(std::move(options), pools, random, log, std::move(on_death)));
  auto thread = copy::TransportThread::create("local", *copy::local::unix_transport_ops(), {}, *made, log);
  if (!thread.ok()) return thread.status();
  made->thread_ = std::move(thread).value();
  made->local_ = made->thread_.get();
  Status opened;
  bool done = false;
  made->local_->help_until([&] { opened = made->open(), done = true; }, [&done] { return done; });
  if (!opened.ok()) return opened;
  return made;
}

// Runs on the local thread, before any node can connect.
Status SameHost::open() {
  copy::Transport& transport = local_->transport();
  if (options_.memory >= 0) {
    auto offered = copy::local::UnixTransport::of(transport.handle()).offer_pool(options_.memory, options_.shape);
    if (!offered.ok()) return offered.status();
  }
  if (options_.socket.empty()) return {};
  return transport.listen(options_.socket).status();
}

HostToken SameHost::token() {
  HostToken out;
  random_.fill(std::as_writable_bytes(std::span(out)));
  return out;
}

// ---- Calls of the links ----

void SameHost::heard(const NodeFacts& peer, Role role, const HostFacts& facts) {
  if (role == Role::responder) return;  // only the dialled side describes itself
  const bool known = options_.boot != std::array<uint8_t, 16>{};
  if (!known || facts.boot != options_.boot) return set_state(peer.node, Path::link, "it is on another machine");
  if (facts.user != options_.user) {
    return set_state(
        peer.node, Path::link,
        "it runs as user " + std::to_string(facts.user) + ", this node as user " + std::to_string(options_.user));
  }
  if (facts.path.empty()) {
    return set_state(peer.node, Path::link, "its node.local is off or does not work there; its log says why");
  }
  post([this, other = Expected{peer.node, peer.incarnation, facts.come, facts.show, 0}, path = facts.path] {
    visit(other, path);
  });
}

std::optional<HostFacts> SameHost::ready(const NodeFacts& peer, Role role) {
  if (role == Role::initiator) return {};
  HostFacts facts;
  facts.boot = options_.boot;
  facts.user = options_.user;
  facts.path = options_.socket;
  if (facts.path.empty()) {
    set_state(peer.node, Path::link, options_.why_no_socket);
    return facts;
  }
  facts.come = token();
  facts.show = token();
  set_state(peer.node, Path::link, "it is on another machine, or does not read in place");
  post([this, one = Expected{peer.node, peer.incarnation, facts.come, facts.show, 0}] { expect(one); });
  return facts;
}

// ---- On the local thread ----

void SameHost::expect(Expected expected) {
  const uint64_t now = local_->clock().now_ns();
  std::erase_if(expected_, [now](const Expected& one) { return one.until_ns <= now; });
  if (expected_.size() >= kMaxExpected) expected_.erase(expected_.begin());
  expected.until_ns = now + kTokenNs;
  if (const Connection* known = connected_to(expected); known != nullptr) set_state(*known);
  expected_.push_back(std::move(expected));
}

const SameHost::Connection* SameHost::connected_to(const Expected& other) const {
  for (const auto& [peer, c] : connections_) {
    if (c.mapped && c.other.node == other.node && c.other.incarnation == other.incarnation) return &c;
  }
  return nullptr;
}

void SameHost::visit(const Expected& other, const std::string& path) {
  if (const Connection* known = connected_to(other); known != nullptr) return set_state(*known);
  const auto peer = local_->transport().connect(path);
  if (!peer.ok()) return set_state(other.node, Path::link, path + ": " + peer.status().message());
  Connection connection;
  connection.outgoing = true;
  connection.other = other;
  connections_.emplace(peer.value(), connection);
  set_state(other.node, Path::unknown, "connecting to " + path);
}

void SameHost::greet(copy::Peer peer, HostWord::Kind kind, const HostToken& token) {
  std::byte word[kHostWordBytes];
  encode(HostWord{kind, token, options_.self.node, options_.self.incarnation}, word);
  (void)local_->transport().send(peer, word);  // a failure is followed by peer_closed()
}

void SameHost::peer_accepted(copy::Peer peer, std::string_view address) {
  if (strangers_ >= kMaxStrangers) {
    (void)local_->transport().disconnect(peer, false);
    return;
  }
  ++strangers_;
  Connection connection;
  connection.from = address;
  connections_.emplace(peer, std::move(connection));
  local_->post_at(local_->clock().now_ns() + kStrangerNs, [this, peer] {
    const auto known = connections_.find(peer);
    if (known == connections_.end() || known->second.known) return;
    (void)local_->transport().disconnect(peer, false);
  });
}

void SameHost::peer_connected(copy::Peer peer) {
  const auto known = connections_.find(peer);
  if (known != connections_.end()) greet(peer, HostWord::Kind::come, known->second.other.come);
}

void SameHost::peer_message(copy::Peer peer, ConstBytes bytes) {
  const auto known = connections_.find(peer);
  if (known == connections_.end()) return;
  Connection& connection = known->second;
  HostWord word;
  const char* fault = nullptr;
  if (const Status said = decode(bytes, word); !said.ok()) {
    fault = "it says nothing that a node says";
  } else if (connection.outgoing) {
    fault = take_show(peer, connection, word);
  } else if (!connection.known) {
    fault = take_come(peer, connection, word);
  } else if (word.kind == HostWord::Kind::here && !connection.mapped) {
    take_pool(peer, connection);
  } else {
    fault = "it says what does not belong there";
  }
  if (fault == nullptr) return;
  if (connection.outgoing || connection.known) {
    log(LogLevel::warning, "refused node " + short_text(connection.other.node) + " at the local socket: " + fault);
  } else {
    const Status why(Code::not_permitted, fault, "if it is a node of this pool, its blocks come over the link");
    refused_.refused(connection.from, word.node, {}, why, local_->clock().now_ns());
  }
  (void)local_->transport().disconnect(peer, false);
}

const char* SameHost::take_come(copy::Peer peer, Connection& connection, const HostWord& word) {
  if (word.kind != HostWord::Kind::come) return "it does not name its node first";
  const uint64_t now = local_->clock().now_ns();
  auto match = expected_.end();
  for (auto it = expected_.begin(); it != expected_.end(); ++it) {
    if (equal_secret(bytes_of(it->come), bytes_of(word.token)) && it->until_ns > now) match = it;
  }
  if (match == expected_.end()) return "its token is none that was given to a node lately";
  const Expected other = *match;
  expected_.erase(match);  // valid for one connection
  if (other.node != word.node || other.incarnation != word.incarnation) return "it shows another node's token";
  connection.other = other;
  connection.known = true;
  --strangers_;
  if (local_->transport().admit(peer) != Code::ok) return "nothing can be handed to it";
  greet(peer, HostWord::Kind::show, other.show);
  return nullptr;
}

const char* SameHost::take_show(copy::Peer peer, Connection& connection, const HostWord& word) {
  const Expected& other = connection.other;
  const bool right = word.kind == HostWord::Kind::show && !connection.known &&
                     equal_secret(bytes_of(other.show), bytes_of(word.token)) && word.node == other.node &&
                     word.incarnation == other.incarnation;
  if (!right) return "it is not the node that said that it would be there";
  connection.known = true;
  if (local_->transport().admit(peer) != Code::ok) return "nothing can be handed to it";
  greet(peer, HostWord::Kind::here, {});
  take_pool(peer, connection);
  return nullptr;
}

void SameHost::take_pool(copy::Peer peer, Connection& connection) {
  const auto handed = copy::local::UnixTransport::of(local_->transport().handle()).pools(peer);
  connection.mapped = true;
  const NodeId node = connection.other.node;
  if (handed.empty()) return set_state(connection);
  connection.pool = handed.front()->id();
  pools_.set(node, connection.other.incarnation, handed.front());
  set_state(connection);
  log(LogLevel::info, "node " + short_text(node) + " is process " + std::to_string(handed.front()->owner_pid()) +
                          " of this machine: its host memory is read in place");
}

void SameHost::peer_closed(copy::Peer peer, const Status& status) {
  const auto known = connections_.find(peer);
  if (known == connections_.end()) return;
  const Connection connection = known->second;
  connections_.erase(known);
  if (!connection.outgoing && !connection.known) {
    --strangers_;
    return;
  }
  const NodeId node = connection.other.node;
  const auto pool = connection.pool != 0 ? pools_.of(node) : nullptr;
  if (pool == nullptr) {
    if (!connection.mapped) set_state(node, Path::link, "the local connection failed: " + status.message());
    return;
  }
  if (!pools_.drop(node, connection.pool)) return;
  set_state(node, Path::link, "the local connection ended: " + status.message());
  if (!pool->memory->alive() && on_death_) on_death_(node);
}

// ---- Reports for users ----

SameHost::State SameHost::state(const NodeId& node) const {
  MutexLock lock(mutex_);
  const auto known = states_.find(node);
  return known != states_.end() ? known->second : State{Path::unknown, "it has not said which machine it is on"};
}

// Sets the state for a connection on which both pools have been handed over.
void SameHost::set_state(const Connection& connection) {
  if (connection.pool != 0) return set_state(connection.other.node, Path::local, {});
  set_state(connection.other.node, Path::link,
            "its host memory is not shared: node.listen is not set there, or host.file is");
}

void SameHost::set_state(const NodeId& node, Path path, std::string why) {
  MutexLock lock(mutex_);
  // Bounds the states of former nodes: no more than a pool of them.
  if (states_.size() >= kMaxExpected && states_.count(node) == 0) states_.erase(states_.begin());
  states_[node] = {path, std::move(why)};
}

void SameHost::log(LogLevel level, const std::string& text) const {
  if (log_ != nullptr) log_->write(level, "node", text);
}

}  // namespace kvbm::cluster
