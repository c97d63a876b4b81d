// Connections between nodes of a session simulation: messages in order, bulk by tag, delays from the seed, and faults:
// lost connections, frozen and killed nodes, garbled bulk, full queues, messages of a hostile peer.
//
// It keeps the contract of lib/copy/transport_abi.h as in session::Link, in the worst way. A post is written in part
// before it is complete. A cancelled one may be written until its token ends. Pieces of a push are read as late as
// possible. The tokens of a lost connection end one by one before it is reported closed. Memory that is passed to the
// network again while the network holds it fails the test: that is staging released too early.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "cluster/session/link.h"
#include "support/sim_executor.h"

namespace kvbm::test {

// Callbacks of a node. Called from tasks of the executor, never from inside a call into the network.
class SessionPeer {
 public:
  virtual ~SessionPeer() = default;
  virtual void on_message(uint64_t peer, ConstBytes bytes) = 0;
  virtual void on_received(uint64_t peer, uint64_t token, Code status, uint64_t bytes) = 0;
  virtual void on_pushed(uint64_t peer, uint64_t token, Code status) = 0;
  virtual void on_writable(uint64_t peer) = 0;
  virtual void on_closed(uint64_t peer) = 0;
};

class SessionNetwork {
 public:
  using Node = uint32_t;
  struct Faults {
    double garble = 0;    // a pushed byte is changed, or the last ones are missing
    double full = 0;      // send() says again
    double refuse = 0;    // post() says again
    bool closed = false;  // push() says closed: its peer has died, and on_closed is still to come
    // Chances of attacks by an admitted peer that a channel cannot detect: a message is delivered twice, before an
    // earlier one, or never.
    double repeat = 0, exchange = 0, drop = 0;
    uint64_t delay_ns = 200'000;
  };
  explicit SessionNetwork(SimExecutor& sim) : sim_(sim) {}
  SessionNetwork(const SessionNetwork&) = delete;
  SessionNetwork& operator=(const SessionNetwork&) = delete;

  Faults faults;

  // Settings of a node's transport for device memory.
  struct Direct {
    bool takes = false;
    bool refuses = false;              // to register any
    double fails = 0;                  // transfers of it; their connection lives
    std::vector<MutableBytes> memory;  // that was registered
  };
  Direct& direct(Node node) { return nodes_[node].direct; }

  // Versions of the nodes' libraries: false for older ones, which know no grains, or no ways.
  bool grains = true;
  bool ways = true;
  // False for nodes of the first version with ways, which lack the way "apart".
  bool apart = true;
  // Removes the way "apart" from pulls, so that they are answered with the whole slice.
  bool whole = false;

  Node add(SessionPeer* peer);
  // Returns the link through which that node sends.
  cluster::session::Link& link(Node node) { return *nodes_[node].link; }
  // Connects two nodes. Returns the name that each side has for the other.
  std::pair<uint64_t, uint64_t> connect(Node a, Node b);
  // Kills the process: it gets no more events, and its connections close on the other side.
  void kill(Node node);
  // Stops the node until it is thawed; its connections stay.
  void freeze(Node node, bool frozen) { nodes_[node].frozen = frozen; }
  [[nodiscard]] bool frozen(Node node) const { return nodes_[node].frozen; }
  // Closes a connection on both sides. `end`: the name that either side has for it.
  void cut(uint64_t end);
  // Returns one end of each open connection.
  [[nodiscard]] std::vector<uint64_t> open_connections() const;
  [[nodiscard]] uint64_t borrowed() const { return borrowed_.size(); }
  [[nodiscard]] uint64_t garbled() const { return garbled_; }
  // Returns the number of messages delivered twice, too early, or never.
  [[nodiscard]] uint64_t meddled() const { return meddled_; }

 private:
  class NodeLink;
  struct NodeState {
    SessionPeer* peer = nullptr;
    bool frozen = false;
    Direct direct;
    std::unique_ptr<cluster::session::Link> link;
  };
  struct Post {
    std::byte* data = nullptr;
    uint64_t bytes = 0, token = 0;
    bool busy = false, cancelled = false;
  };
  struct Push {
    uint64_t tag = 0, token = 0;
    std::vector<ConstBytes> pieces;
    bool started = false;
  };
  // One side of a connection.
  struct End {
    Node node = 0;
    uint64_t other = 0;
    bool open = true;   // from the network's point of view
    bool told = false;  // on_closed was called, or the node was killed
    bool full = false;  // returns again; on_writable follows
    std::deque<std::vector<std::byte>> inbox;
    std::map<uint64_t, Post> posts;   // by tag
    std::map<uint64_t, Push> pushes;  // by token; of this side
  };

  Code send(Node node, uint64_t end, ConstBytes message);
  Code post(Node node, uint64_t end, uint64_t tag, MutableBytes to, uint64_t token);
  Code push(Node node, uint64_t end, uint64_t tag, std::span<const ConstBytes> pieces, uint64_t token);
  void cancel(uint64_t end, uint64_t token);
  void enqueue(uint64_t end, ConstBytes message);
  void deliver(uint64_t end);
  void drained(uint64_t end);
  void move(uint64_t end, uint64_t token, int phase);
  void finish_move(uint64_t end, Push push);
  void end_cancelled(uint64_t end, uint64_t tag);
  void drain(uint64_t end);
  bool chance(double p) { return p > 0 && static_cast<double>(sim_.random().below(1'000'000)) < p * 1e6; }
  void later(UniqueFunction<void()> task);
  bool wait_if_frozen(const End& end, UniqueFunction<void()> again);
  // Returns whether the memory is a device's. If it is, it must have been registered.
  bool on_device(Node node, const std::byte* data, uint64_t bytes);
  void borrow(const std::byte* data, uint64_t bytes, bool exclusive);
  void give_back(const std::byte* data);

  SimExecutor& sim_;
  std::vector<NodeState> nodes_;
  std::map<uint64_t, End> ends_;
  uint64_t next_end_ = 1;
  std::map<const std::byte*, uint64_t> borrowed_;  // posted memory
  uint64_t garbled_ = 0, meddled_ = 0;
};

}  // namespace kvbm::test
