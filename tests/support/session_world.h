// A prefill side and a decode side as processes on a SessionNetwork: each rank is a node with a Sender and a
// Receiver, its own staging and its own caches. The invariants of lib/cluster/session are checked as things happen:
// a layer that is reported has exactly the model's bytes, each session and each offer ends once and by its deadline,
// holds are released once.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster/session/receiver.h"
#include "cluster/session/sender.h"
#include "support/session_coder.h"
#include "support/session_mover.h"
#include "support/session_network.h"
#include "support/session_shapes.h"

namespace kvbm::test {

// One rank's process.
class SessionNode final : public SessionPeer, public cluster::session::Holder {
 public:
  struct Options {
    uint16_t rank = 0;
    uint32_t staging_slots = 4;
    uint32_t slice_bytes = cluster::session::kMinSliceBytes;
    uint64_t straight_from_bytes = 256 * 1024;
    size_t outbox_bytes = 1 << 20;
    uint64_t least_direct_bytes = 0;
    bool codes = false;  // slices, as `coder` says
  };
  SessionNode(SimExecutor& sim, SessionNetwork& net, const Options& options);
  ~SessionNode() override = default;

  SessionNetwork::Node id = 0;
  std::unique_ptr<cluster::session::Sender> sender;
  std::unique_ptr<cluster::session::Receiver> receiver;
  SimMover mover;                // for engines with memory on a device
  SimCoder coder;                // where Options::codes
  uint64_t seed = 0;             // of the truth that the caches must have
  RankEngine* target = nullptr;  // engine in which layers are checked
  // Events observed so far.
  std::map<uint64_t, Status> finished;  // sessions
  std::map<uint64_t, std::set<std::pair<uint32_t, uint32_t>>> layers;
  std::map<cluster::session::RequestId, Status> offers_ended;
  std::set<cluster::session::RequestId> held;
  std::set<uint64_t> closed;  // connections
  std::vector<std::string> notes;
  uint64_t last_finish_ns = 0;
  bool refuse_holds = false;

  // Called after each call into the sender or the receiver: takes their events and checks them.
  void drain();

  void on_message(uint64_t peer, ConstBytes bytes) override;
  void on_received(uint64_t peer, uint64_t token, Code status, uint64_t bytes) override;
  void on_pushed(uint64_t peer, uint64_t token, Code status) override;
  void on_writable(uint64_t peer) override;
  void on_closed(uint64_t peer) override;
  Status hold(const cluster::session::RequestId& request, std::span<const cluster::session::LocalPart> parts) override;
  void release(const cluster::session::RequestId& request) override;

 private:
  void on_event(const cluster::session::ReceiverEvent& event);
  void tick();

  SimExecutor& sim_;
  SessionNetwork& net_;
  std::vector<std::byte> memory_;
  uint64_t tick_at_ = kNever;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

cluster::session::RequestId request_id(uint64_t number);

}  // namespace kvbm::test
