// Nodes of one machine and one user find each other's memory: beside the link of a mesh, a local connection over which
// each hands its host tier to the other.
//
// The side of a link that was dialled says, over the link's keyed channel, which machine and user it is, the path of
// its socket, and two tokens (host_facts.h). The one that dialled, if machine and user are its own, comes to the socket
// and shows the first token; the other then hands over its pool and shows the second; only then does the first hand
// over its own. So each knows that who is at the socket is who is at the other end of the link, and the kernel has said
// of both that they are of this user (copy/local). What cannot be done so is done over the link as ever, and why() says
// what it was.
//
// Thread: a local connection's calls and what they use run on the local transport's thread; ready() and heard() are for
// the links', state() for any. Limits: kMaxExpected tokens for kTokenNs, kMaxStrangers connections for kStrangerNs that
// have shown none. Lock: mutex_, a leaf: states_.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "cluster/handshake.h"
#include "cluster/host_facts.h"
#include "cluster/mapped_pools.h"
#include "cluster/stranger_log.h"
#include "copy/transport_thread.h"

namespace kvbm::cluster {

struct SameHostOptions {
  NodeFacts self;
  std::string socket;             // absolute path, to listen at; empty: nobody can come here
  std::string why_no_socket;      // for people, where it is empty
  int memory = -1;                // of the host tier, to hand over: a descriptor of sealed memory; -1: nothing is
  tier::HostShape shape;          // what lies where in it
  std::array<uint8_t, 16> boot{}; // zero: this machine is not known, everybody is elsewhere
  uint32_t user = 0;
};

class SameHost final : private copy::TransportListener {
 public:
  static constexpr size_t kMaxExpected = 1024;
  static constexpr size_t kMaxStrangers = 64;
  static constexpr uint64_t kTokenNs = 10'000'000'000;
  static constexpr uint64_t kStrangerNs = 2'000'000'000;
  // A node whose process has ended, on the local thread: its memory will not be told apart from what it was.
  using OnDeath = std::function<void(const NodeId&)>;

  // Listens, and makes the thread. Pools come and go in `pools`, which outlives this, as the log does.
  static Result<std::unique_ptr<SameHost>> create(SameHostOptions options, MappedPools& pools, Random& random,
                                                  const Log* log, OnDeath on_death);
  ~SameHost() override;
  SameHost(const SameHost&) = delete;
  SameHost& operator=(const SameHost&) = delete;

  // A link to `peer` is ready: what to tell it. The side that dialled tells nothing.
  std::optional<HostFacts> ready(const NodeFacts& peer, Role role);
  // What the peer told.
  void heard(const NodeFacts& peer, Role role, const HostFacts& facts);

  // How records of that node are read.
  enum class Path : uint8_t { unknown, local, link };  // unknown: they are still about to find out
  struct State {
    Path path = Path::unknown;
    std::string why;  // where it is not local
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
    bool known = false;  // it has shown its token
    bool mapped = false;
    std::string from;    // of an accepted one: which process, as the transport calls it
    Expected other;      // who it is; of an accepted one once it is known
    uint64_t pool = 0;
  };

  SameHost(SameHostOptions options, MappedPools& pools, Random& random, const Log* log, OnDeath on_death);
  Status open();
  // Task for the local thread.
  void post(UniqueFunction<void()> task) { local_->post(std::move(task)); }

  void expect(Expected expected);
  void visit(const Expected& other, const std::string& path);
  [[nodiscard]] const Connection* connected_to(const Expected& other) const;
  void greet(copy::Peer peer, HostWord::Kind kind, const HostToken& token);
  // Who comes shows its token; who was visited shows the other; the last word says that all is handed over.
  const char* take_come(copy::Peer peer, Connection& connection, const HostWord& word);
  const char* take_show(copy::Peer peer, Connection& connection, const HostWord& word);
  void take_pool(copy::Peer peer, Connection& connection);
  void set_state(const Connection& connection);
  void set_state(const NodeId& node, Path path, std::string why);
  void log(LogLevel level, const std::string& text) const;
  HostToken token();

  // copy::TransportListener
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
  // The local thread alone.
  std::map<copy::Peer, Connection> connections_;
  std::vector<Expected> expected_;
  size_t strangers_ = 0;

  mutable Mutex mutex_;
  std::map<NodeId, State> states_ KVBM_GUARDED_BY(mutex_);
  copy::TransportThread* local_ = nullptr;         // its tasks and calls use it until it has ended
  std::unique_ptr<copy::TransportThread> thread_;  // goes first
};

}  // namespace kvbm::cluster
