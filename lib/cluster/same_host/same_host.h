// Nodes of one machine and one user find each other's memory: beside the link of a mesh, over a local connection,
// each hands its host tier to the other.
//
// The dialled side of a link sends over the link's keyed channel: its machine and user, the path of its socket, and
// two tokens (host_facts.h). If machine and user are its own, the dialling side connects to the socket and presents
// the first token. The other side then hands over its pool and presents the second token; only then does the dialling
// side hand over its own. So each knows that the process at the socket is the node at the other end of the link. The
// kernel has confirmed that both belong to this user (copy/local). If any of this fails, records are read over the
// link as before, and why() has the reason.
//
// Thread: calls of a local connection and their data are used on the local transport's thread; ready() and heard()
// are for the links', state() for any. Limits: kMaxExpected tokens for kTokenNs, kMaxStrangers connections for
// kStrangerNs that have presented none. Lock: mutex_, a leaf: states_.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/crypto/random.h"
#include "base/telemetry/log.h"
#include "cluster/admission/handshake.h"
#include "cluster/admission/stranger_log.h"
#include "cluster/same_host/host_facts.h"
#include "cluster/same_host/mapped_pools.h"
#include "copy/transport_thread.h"

namespace kvbm::cluster {

struct SameHostOptions {
  NodeFacts self;
  std::string socket;              // absolute path of the listening socket; empty: no node can connect here
  std::string why_no_socket;       // for users, if it is empty
  int memory = -1;                 // of the host tier, to hand over: a descriptor of sealed memory; -1: none
  tier::HostShape shape;           // layout of that memory
  std::array<uint8_t, 16> boot{};  // zero: this machine is unknown, so every node counts as elsewhere
  uint32_t user = 0;
};

class SameHost final : private copy::TransportListener {
 public:
  static constexpr size_t kMaxExpected = 1024;
  static constexpr size_t kMaxStrangers = 64;
  static constexpr uint64_t kTokenNs = 10'000'000'000;
  static constexpr uint64_t kStrangerNs = 2'000'000'000;
  // Callback for a node with a process that has ended, on the local thread: its memory cannot change any more.
  using OnDeath = std::function<void(const NodeId&)>;

  // Listens, and makes the thread. Adds and removes pools in `pools`, which outlives this object, as the log does.
  static Result<std::unique_ptr<SameHost>> create(SameHostOptions options, MappedPools& pools, Random& random,
                                                  const Log* log, OnDeath on_death);
  ~SameHost() override;
  SameHost(const SameHost&) = delete;
  SameHost& operator=(const SameHost&) = delete;

  // Returns the facts to send when a link to `peer` is ready. The dialling side sends none.
  std::optional<HostFacts> ready(const NodeFacts& peer, Role role);
  // Takes the facts that the peer has sent.
  void heard(const NodeFacts& peer, Role role, const HostFacts& facts);

  // Path by which that node's records are read.
  enum class Path : uint8_t { unknown, local, link };  // unknown: still being decided
  struct State {
    Path path = Path::unknown;
    std::string why;  // if it is not local
  };
  [[nodiscard]] State state(const NodeId& node) const;
  [[nodiscard]] const std::string& socket() const noexcept { return options_.socket; }

 private:
  struct Expected {
    NodeId node;
    uint64_t incarnation = 0;
    HostToken come{};
    HostToken show{};
    uint64_t until_ns = 0;
  };
  // One connection of the local transport.
  struct Connection {
    bool outgoing = false;
    bool known = false;  // has presented its token
    bool mapped = false;
    std::string from;  // of an accepted one: its process, as the transport names it
    Expected other;    // the node; of an accepted one once it is known
    uint64_t pool = 0;
  };

  SameHost(SameHostOptions options, MappedPools& pools, Random& random, const Log* log, OnDeath on_death);
  Status open();
  // Posts a task to the local thread.
  void post(UniqueFunction<void()> task) { local_->post(std::move(task)); }

  void expect(Expected expected);
  void visit(const Expected& other, const std::string& path);
  [[nodiscard]] const Connection* connected_to(const Expected& other) const;
  void greet(copy::Peer peer, HostWord::Kind kind, const HostToken& token);
  // The connecting side presents its token; the visited one presents the other; the last word confirms the handing
  // over.
  const char* take_come(copy::Peer peer, Connection& connection, const HostWord& word);
  const char* take_show(copy::Peer peer, Connection& connection, const HostWord& word);
  void take_pool(copy::Peer peer, Connection& connection);
  void set_state(const Connection& connection);
  void set_state(const NodeId& node, Path path, std::string why);
  void log(LogLevel level, const std::string& text) const;
  HostToken token();

  // Implements copy::TransportListener.
  void peer_accepted(copy::Peer peer, std::string_view address) override;
  void peer_connected(copy::Peer peer) override;
  void peer_message(copy::Peer peer, ConstBytes bytes) override;
  void pushed(copy::Peer, copy::Token, Code) override {}
  void received(copy::Peer, copy::Token, Code, uint64_t) override {}
  void peer_closed(copy::Peer peer, const Status& status) override;

  const SameHostOptions options_;
  MappedPools& pools_;
  Random& random_;
  const Log* const log_;
  StrangerLog refused_;
  const OnDeath on_death_;
  // Used on the local thread only.
  std::map<copy::Peer, Connection> connections_;
  std::vector<Expected> expected_;
  size_t strangers_ = 0;

  mutable Mutex mutex_;
  std::map<NodeId, State> states_ KVBM_GUARDED_BY(mutex_);
  copy::TransportThread* local_ = nullptr;         // its tasks and calls use it until it has ended
  std::unique_ptr<copy::TransportThread> thread_;  // destroyed first
};

}  // namespace kvbm::cluster
