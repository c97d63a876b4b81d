// A network in memory on the simulation's executor, behind the table of copy/transport_abi.h: several nodes on one
// thread, with delays, faults, stalls and kills from the seed.
//
//   SimExecutor sim(seed);
//   SimNetwork net(sim);
//   const auto a = net.add_node(), b = net.add_node();
//   auto transport = copy::Transport::open(net.ops(a), {}, listener);   // ops(): the node that opens next
//   net.on_wake(a, [&] { net.executor(a).post([&] { while (transport->progress()) {} }); });
//   net.cut(a, b); ... net.heal(a, b); net.freeze(b); net.kill(b); net.skip(a, 60'000'000'000);
//
// Model. A connection is ordered and reliable, or it dies, like TCP's, unless faults.repeat, .exchange or .drop make an
// attacker change its traffic. Different connections have no order. Nodes have their own clocks (sim_process.h). A side
// may have kWindowBytes in flight that the other process has not read; pushes leave the host's memory chunk by chunk as
// the window opens. cut(): bytes wait, in both directions, and connections die after kSilenceNs of it. freeze(): the
// process is stopped (SIGSTOP). Its kernel still accepts connections and bytes up to the window; its tasks and
// progress() wait. kill(): the process is gone. Its bytes in flight still arrive, then the connections break. Its
// transports return Code::closed, make no callback, touch no memory, and may be destroyed at any time after. Its tasks
// are never run. The node can open transports again at once. A damaged bit (faults) is not detected here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "copy/transport_abi.h"
#include "support/sim_executor.h"
#include "support/sim_process.h"

namespace kvbm::test {

class SimTransport;
struct SimPacket;
struct SimWire;

class SimNetwork {
 public:
  using Node = uint32_t;
  static constexpr uint64_t kWindowBytes = 256U << 10;
  static constexpr uint64_t kSilenceNs = 10'000'000'000;
  static constexpr uint64_t kFlushNs = 2'000'000'000;

  // Chances in [0, 1], drawn for each message or chunk of bulk that leaves.
  struct Faults {
    double flip_message = 0;  // one bit of it is another
    double flip_bulk = 0;
    double lose_connection = 0;  // its connection breaks, seen by both sides
    // Chances of an attack on a message or chunk, on a connection that stays: it arrives twice, behind the next one, or
    // never.
    double repeat = 0;
    double exchange = 0;
    double drop = 0;
  };
  // Numbers of attacks made, and of jumps of clocks.
  struct Counts {
    uint64_t repeated = 0, exchanged = 0, dropped = 0, skips = 0;
  };
  struct Link {
    // Delay of each message or chunk, drawn evenly between these.
    uint64_t min_delay_ns = 20'000;
    uint64_t max_delay_ns = 200'000;
    uint64_t bytes_per_ms = 0;  // 0: as fast as they come
  };
  Faults faults;
  // An attacker's changes to messages that leave side `from` of a connection (0 made it), before the faults; and to
  // pieces of bulk. On a protected connection the tag is their last 16 bytes.
  using Meddle = std::function<void(uint64_t wire, int from, std::vector<std::byte>& message)>;
  Meddle meddle;
  Meddle meddle_bulk;

  explicit SimNetwork(SimExecutor& sim);
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  Node add_node();
  // 10.0.x.y, without a port.
  [[nodiscard]] static std::string host(Node node);
  // 127.1.x.y: another name for it, as if all nodes were on one machine.
  [[nodiscard]] static std::string loopback(Node node);
  // The table; the next open() on this thread belongs to `node`.
  const kvbm_transport_ops_t& ops(Node node);
  // Called when a transport of the node has something to do: post its progress(), do not call it.
  void on_wake(Node node, std::function<void()> wake);
  // Runs tasks of that node's process: they wait while it is frozen and are dropped when it is killed.
  Executor& executor(Node node);
  // Sets the node's clock, which executor() uses: it reads begins_ns now, and runs at per_mille of the simulation's
  // speed.
  void set_clock(Node node, uint64_t begins_ns, uint64_t per_mille);
  // Makes the node's clock jump forward.
  void skip(Node node, uint64_t ns);

  // Returns the settings of the connections between two nodes, for both directions.
  Link& link(Node a, Node b);
  void cut(Node a, Node b);
  void heal(Node a, Node b);
  // Refuses connections to the node, as if it did not listen.
  void refuse(Node node, bool refused);
  void freeze(Node node);
  void thaw(Node node);
  void kill(Node node);
  // Breaks every connection between two nodes, without a cut.
  void break_connections(Node a, Node b);

  [[nodiscard]] bool frozen(Node node) const;
  // Payload bytes of bulk that were carried.
  [[nodiscard]] uint64_t bulk_bytes() const { return bulk_bytes_; }
  [[nodiscard]] size_t connections() const;
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  friend class SimTransport;
  struct Place {
    std::unique_ptr<SimProcess> process;
    std::function<void()> wake;
    bool frozen = false;
    bool refused = false;
    uint16_t next_port = 7000;
  };
  using Pair = std::pair<Node, Node>;

  static Pair pair_of(Node a, Node b) { return a < b ? Pair{a, b} : Pair{b, a}; }
  bool is_cut(const SimWire& wire) const;
  SimTransport* transport_of(uint64_t id);
  uint64_t delay(const SimWire& wire);
  void wake(Node node);
  void arrive(uint64_t wire, int to);
  void open_wire(SimWire& wire);
  void take_back(uint64_t wire, int from, uint64_t bytes);
  void break_wire(SimWire& wire, int32_t status, const std::string& reason);
  void flip(std::vector<std::byte>& bytes, double chance);
  bool chance(double of);
  void fly(SimWire& wire, int from, SimPacket packet);

  // Called by SimTransport.
  void transmit(SimWire& wire, int from, SimPacket packet);
  void taken(SimWire& wire, int to, uint64_t bytes);
  void shut(SimWire& wire, int from);
  void leave(SimWire& wire, int from);
  uint64_t start_wire(SimTransport& from, const std::string& address);
  void later(uint64_t when_ns, Task task);

  SimExecutor& sim_;
  std::shared_ptr<bool> life_ = std::make_shared<bool>(true);
  std::vector<Place> places_;
  std::map<Pair, Link> links_;
  std::map<Pair, uint64_t> cuts_;  // and which cut it is
  uint64_t cut_serial_ = 0;
  std::map<std::string, uint64_t> listeners_;  // address to transport
  std::map<uint64_t, SimTransport*> transports_;
  std::map<uint64_t, std::unique_ptr<SimWire>> wires_;
  uint64_t next_transport_ = 1;
  uint64_t next_wire_ = 1;
  uint64_t bulk_bytes_ = 0;
  Counts counts_;
};

}  // namespace kvbm::test
