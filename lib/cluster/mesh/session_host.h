// Sessions over links: joins the prefill and the decode side (cluster/session) of this node to the mesh, which knows
// the places of its peers.
//
// A decode side names the nodes that it reads from as the mesh knows them (Mesh::link_named); a session waits, within
// its deadline, until all of them are connected. Each prefill rank of this node is a Sender with staging of its own,
// made when the rank is first offered or requested; the decode side is one Receiver. Staging is mapped when the first
// session needs it. Thread: the links'. Each offer and each session ends with exactly one call of its `done`, on that
// thread, outside the call that began it. The state of `done` is destroyed with it, after the last access to the
// caller's memory. Blocks in device memory are copied by movers (session/mover.h), which report their ends as tasks
// of this thread; these may run after this object is gone. Bounded: kMaxRanks, and the limits of Sender and Receiver.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/function.h"
#include "base/telemetry/log.h"
#include "cluster/link/link_types.h"
#include "cluster/session/link.h"
#include "cluster/session/outbox.h"
#include "cluster/session/requests.h"

namespace kvbm {
class Arena;
}

namespace kvbm::cluster {

class LinkCoder;
class LinkSliceCoder;
class Mesh;
namespace session {
class Receiver;
class Staging;
}  // namespace session

// Sessions of this node, now and so far, all ranks together.
struct SessionCounts {
  uint64_t sessions = 0, offers = 0;                               // now
  uint64_t staging_taken = 0, shared_taken = 0, direct_taken = 0;  // slots in use now
  uint64_t direct_failures = 0;  // transfers of device memory that were replaced by host memory
  session::ReceiverStats received;
  session::SenderStats sent;
};

class SessionHost final : public LinkListener, private session::Link {
 public:
  struct Options {
    uint64_t staging_bytes = 64ULL << 20;  // for received data; a prefill rank has a quarter of it
    uint32_t slice_bytes = 1U << 20;
    // Called with the memory of slices before it is used, so that devices can map it.
    std::function<void(std::shared_ptr<Arena>)> staging_mapped;
    // Coder of slices, used by tasks of `core`, which outlives this; null: slices are neither coded nor sealed.
    std::shared_ptr<LinkCoder> coder = nullptr;
    Executor* core = nullptr;
    std::function<bool(const NodeId&)> in_place = nullptr;  // LinkSliceCoder::Options
    // Registers device memory with the transport of the links; empty: it cannot, or must not.
    std::function<Status(MutableBytes)> add_device_memory = nullptr;
  };
  // Prefill ranks of this node: others may create so many, and this node itself as many again.
  static constexpr size_t kMaxRanks = 64;

  using OfferDone = UniqueFunction<void(const session::SenderEvent&)>;
  struct Session {
    session::OpenRequest request;  // its sources have names (Mesh::link_named); their peers are filled in here
    UniqueFunction<void(Component, uint16_t layer)> layer_ready;
    UniqueFunction<void(const Status&)> done;
    session::SessionId id = 0;  // filled in here; 0: waits for nodes
  };

  // The mesh reports links to this object (Mesh::serve_sessions). Both outlive the links, and the mesh outlives this.
  SessionHost(const Options& options, Mesh& mesh, const Log* log);
  ~SessionHost() override;
  SessionHost(const SessionHost&) = delete;
  SessionHost& operator=(const SessionHost&) = delete;

  // Makes an offer. `done` reports a refusal as well.
  void offer(uint16_t rank, const session::OfferRequest& request, OfferDone done);
  // Publishes. A refusal ends the offer; an offer that has ended already stays unchanged.
  void publish(uint16_t rank, const session::RequestId& request, Component component, uint32_t first_layer,
               uint32_t layers, session::Range range);
  void publish_all(uint16_t rank, const session::RequestId& request);
  void abort_offer(uint16_t rank, const session::RequestId& request, Code code, const std::string& why);
  // `name`: chosen by the caller for abort(), and unique for every session.
  void open(uint64_t name, Session session);
  void abort(uint64_t name, Code code, const std::string& why);

  [[nodiscard]] size_t offers() const noexcept { return offers_.size(); }
  [[nodiscard]] size_t sessions() const noexcept { return sessions_.size(); }
  // Returns the slots that transfers use now, of all ranks and of the decode side.
  [[nodiscard]] uint32_t staging_taken() const noexcept;
  [[nodiscard]] SessionCounts counts() const noexcept;

  // Must run before the links' executor is destroyed: results of coding are dropped from then on.
  void detach();

  // Implements LinkListener.
  void link_ready(PeerLink& link) override;
  void link_ended(PeerLink& link, const Status& why) override;
  void link_session(PeerLink& link, ConstBytes bytes) override;
  void link_session_moved(PeerLink& link, uint64_t name, Code code, uint64_t bytes) override;
  void link_session_writable(PeerLink& link) override;

 private:
  struct Rank;  // a Sender, its staging and its holder
  using OfferKey = std::pair<uint16_t, session::RequestId>;
  struct Offered {
    OfferDone done;
    session::SenderEvent end;
  };

  // Implements session::Link.
  Code send(session::PeerId peer, ConstBytes message) override;
  Code post(session::PeerId peer, uint64_t tag, MutableBytes to, uint64_t token) override;
  Code push(session::PeerId peer, uint64_t tag, std::span<const ConstBytes> pieces, uint64_t token) override;
  void cancel(session::PeerId peer, uint64_t token) override;
  void drop(session::PeerId peer) override;
  [[nodiscard]] bool takes_grain(session::PeerId peer) const override;
  [[nodiscard]] bool takes_ways(session::PeerId peer) const override;
  [[nodiscard]] bool takes_device_memory() const override { return options_.add_device_memory != nullptr; }
  Status add_memory(MutableBytes memory) override { return options_.add_device_memory(memory); }

  [[nodiscard]] uint64_t now() const;
  [[nodiscard]] PeerLink* link_of(session::PeerId peer) const;
  [[nodiscard]] session::PeerId peer_of(const PeerLink& link) const;
  Result<std::pair<std::shared_ptr<Arena>, session::Staging>> make_staging(uint64_t bytes);
  Result<Rank*> rank(uint16_t number, size_t limit);
  Status make_receiver();
  // Returns the log function for sessions.
  [[nodiscard]] std::function<void(const std::string&)> notes() const;
  // Returns true if it was opened, or has ended.
  bool try_open(uint64_t name, Session& session);
  void open_waiting();
  [[nodiscard]] std::string missing(const Session& session) const;
  // Returns why a decode rank may be missing; empty: a missing link is not the cause.
  [[nodiscard]] std::string unlinked() const;
  void end_waiting(uint64_t name, Status why);
  void tick(uint64_t armed);
  // Runs after everything that may have ended something: reports ends, and sets the next timer.
  void settle();
  void take_events();
  void run_callbacks();
  void arm();

  const Options options_;
  Mesh& mesh_;
  const Log* const log_;
  std::unique_ptr<LinkSliceCoder> coder_;  // declared before its users
  session::Outbox refusals_;               // of ranks that do not exist here
  session::PeerId last_peer_ = 0;
  std::map<session::PeerId, PeerLink*> links_;  // ready ones
  std::map<uint16_t, std::unique_ptr<Rank>> ranks_;
  std::shared_ptr<Arena> memory_;  // of the receiver
  std::unique_ptr<session::Receiver> receiver_;
  std::map<OfferKey, Offered> offers_;
  std::map<uint64_t, Session> sessions_;              // by the caller's name
  std::map<session::SessionId, uint64_t> opened_as_;  // sessions that do not wait
  std::vector<OfferKey> released_;                    // offers with blocks that are free again
  std::vector<UniqueFunction<void()>> callbacks_;
  uint64_t armed_ns_ = kNever;
};

}  // namespace kvbm::cluster
