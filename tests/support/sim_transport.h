// One process's transport on a SimNetwork, and what travels between two of them. Only sim_network.cc and
// sim_transport.cc include this.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "copy/frame_guard.h"
#include "support/sim_network.h"

namespace kvbm::test {

enum class SimPacketKind { opened, refused, message, chunk, fin, reset };

struct SimPacket {
  SimPacketKind kind = SimPacketKind::message;
  std::vector<std::byte> bytes;
  uint64_t tag = 0;
  uint64_t total = 0;
  bool first = false;  // of a push
  // Faults that the network has applied to this packet.
  bool dropped = false, late = false, waited = false;
  [[nodiscard]] bool is_payload() const { return kind == SimPacketKind::message || kind == SimPacketKind::chunk; }
  // Returns the bytes that the packet takes of the window.
  [[nodiscard]] uint64_t weight() const { return bytes.size() + 32; }
};

// A connection: side 0 made it.
struct SimWire {
  struct Direction {
    std::deque<SimPacket> flying;
    uint64_t last_arrival = 0;
    uint64_t free_at = 0;
    uint64_t untaken = 0;  // bytes that the other process has not taken
    uint64_t stalled = 0;  // arrivals that a cut held up
    uint64_t untold = 0;   // bytes that it took, which a cut keeps from this side
    bool shut = false;     // nothing more leaves
  };
  uint64_t id = 0;
  SimNetwork::Node node[2] = {0, 0};
  uint64_t transport[2] = {0, 0};  // 0: gone, or not accepted yet
  Direction out[2];                // by the side that sends
  std::string address;             // that was connected to
  uint64_t asks = 0;               // for the connection, in vain
  bool asked = false;              // the connection request has arrived
};

// Set by SimNetwork::ops().
std::pair<SimNetwork*, SimNetwork::Node> sim_node_that_opens();

class SimTransport {
 public:
  SimTransport(SimNetwork& network, SimNetwork::Node node, const kvbm_transport_options_t& options,
               const kvbm_transport_host_t& host);
  ~SimTransport();

  static const kvbm_transport_ops_t& table();

  // Members for the calls of the transport's table.
  bool busy() const { return alive_ && (!inbox_.empty() || !ended_.empty() || !dying_.empty()); }
  uint32_t progress();
  Status listen(const std::string& address, std::string& bound);
  Status connect(const std::string& address, uint64_t& peer);
  Code admit(uint64_t peer);
  Code protect(uint64_t peer, copy::Protection how, const uint8_t* send_key, const uint8_t* receive_key);
  Code disconnect(uint64_t peer, bool flush);
  Code send(uint64_t peer, ConstBytes bytes);
  Code post(uint64_t peer, uint64_t tag, void* to, uint64_t bytes, uint64_t token);
  Code push(uint64_t peer, uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t token);
  Code cancel(uint64_t peer, uint64_t token);

  // Members that the network calls.
  [[nodiscard]] uint64_t id() const { return id_; }
  [[nodiscard]] SimNetwork::Node node() const { return node_; }
  void deliver(uint64_t wire, SimPacket packet);
  void accept(uint64_t wire);
  void window_opened(uint64_t wire);
  void broke(uint64_t wire, Code status, const std::string& reason);
  void killed();

 private:
  struct Push {
    uint64_t tag = 0;
    uint64_t token = 0;
    uint64_t total = 0;
    uint64_t sent = 0;
    bool begun = false;
    std::vector<kvbm_transport_piece_t> pieces;
  };
  struct Post {
    std::byte* to = nullptr;
    uint64_t bytes = 0;
    uint64_t token = 0;
  };
  struct End {
    uint64_t peer = 0;
    uint64_t wire = 0;
    int side = 0;
    bool connected = false;
    bool admitted = false;
    bool flushing = false;
    bool dead = false;
    bool refused = false;
    std::deque<std::vector<std::byte>> messages;
    uint64_t queued = 0;
    std::deque<Push> pushes;
    std::map<uint64_t, Post> posts;     // by tag
    std::map<uint64_t, bool> tokens;    // true: a push
    std::map<uint64_t, uint64_t> tags;  // of posts, by token
    Post active;                        // the push that is coming in
    bool active_posted = false;
    uint64_t active_tag = 0, active_at = 0, active_total = 0;
    uint64_t rest = 0;                                  // of the push that is coming in, which chunks must bring
    std::unique_ptr<copy::FrameGuard> sends, receives;  // null: what leaves, or arrives, has no tags
    Code status = Code::ok;
    std::string reason;
  };
  struct Told {
    enum { pushed, received, writable } kind = pushed;
    uint64_t peer = 0;
    uint64_t token = 0;
    Code status = Code::ok;
  };
  struct Arrival {
    uint64_t wire = 0;
    bool accept = false;
    SimPacket packet;
  };

  End* find(uint64_t peer);
  End* of_wire(uint64_t wire);
  End& add(uint64_t wire, int side, bool connected);
  Code usable(uint64_t peer, End*& end);
  void take(Arrival arrival);
  void transmit(End& end, SimWire& wire, SimPacket packet);
  bool open_guarded(End& end, SimPacket& packet);
  void take_message(End& end, const SimPacket& packet);
  void take_chunk(End& end, const SimPacket& packet);
  void pump(End& end);
  void send_chunk(End& end, SimWire& wire);
  SimWire* wire_of(const End& end);
  void tell_ended();
  void end_tokens(End& end, bool pushes, Code status, bool now);
  void die(End& end, Code status, std::string reason);
  void bury();
  void something_to_do();

  SimNetwork& network_;
  const SimNetwork::Node node_;
  const uint64_t id_;
  const kvbm_transport_options_t options_;
  const kvbm_transport_host_t host_;
  bool alive_ = true;
  std::map<uint64_t, End> ends_;
  std::map<uint64_t, uint64_t> peer_of_wire_;
  std::deque<Arrival> inbox_;
  std::deque<Told> ended_;
  std::deque<uint64_t> dying_;
  uint64_t next_peer_ = 1;
};

}  // namespace kvbm::test
