// The prefill side of sessions, for one rank: offers a request's blocks, announces computed layers, and serves pulls
// from engine memory. A decode node that hands a running request over is a Sender too.
//
// A state machine: messages, completions and ticks are its input; messages, pushes, hold and release its output. No
// thread, no wait, no clock of its own; one thread at a time. Bounded: offers, early opens, pulls and staging all
// have limits. Ended offers are forgotten at once, except for staging and zero-copy pushes that a transfer still
// reads. Payloads of blocks on a device may stay in memory that the decode side has mapped (sender_shared.cc), or be
// sent from memory of the device (sender_direct.cc). Promises: every offer ends exactly once, by its deadline; hold()
// is followed by exactly one release(), after the last byte of engine memory was read. Protocol: README.md.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cluster/session/block_map.h"
#include "cluster/session/coded_slice.h"
#include "cluster/session/direct_staging.h"
#include "cluster/session/intervals.h"
#include "cluster/session/link.h"
#include "cluster/session/outbox.h"
#include "cluster/session/requests.h"
#include "cluster/session/shared_slots.h"
#include "cluster/session/slice.h"
#include "cluster/session/staging.h"
#include "cluster/session/wire.h"

namespace kvbm::cluster::session {

// Keeps the engine from reusing a request's blocks. Called from inside the Sender; must not call it back.
class Holder {
 public:
  virtual ~Holder() = default;
  // A refusal refuses the offer.
  virtual Status hold(const RequestId& request, std::span<const LocalPart> parts) = 0;
  virtual void release(const RequestId& request) = 0;
};

class Sender {
 public:
  struct Options {
    uint16_t rank = 0;
    uint16_t transfer_base = 1;  // top bits of push tokens; differs from other users of the link
    uint32_t max_offers = 4096;
    uint32_t max_early_opens = 1024;
    uint32_t max_pulls_per_sink = 256;
    // Pieces of engine memory at least this long are sent without a copy. 0 = never.
    uint64_t straight_from_bytes = 256 * 1024;
    size_t peer_outbox_bytes = 1 << 20;
    // Called when a mover's copy or the coding of a slice has ended: there may be events. Called outside of every
    // other call.
    std::function<void()> moved;
    SliceCoder* coder = nullptr;  // outlives this object; null: slices are sent plain
    // Shorter payloads are not sent from device memory: a transport would not use hardware for them.
    uint64_t least_direct_bytes = 64 * 1024;
    // Gets messages for the log that are reported nowhere else. May be empty.
    std::function<void(const std::string&)> note;
    // Returns which links are missing and why, for an offer that no rank has opened; null, or empty text: none is
    // known.
    std::function<std::string()> unlinked = nullptr;
    // Returns a connection's peer by a name for users. May be empty.
    std::function<std::string(PeerId)> named = nullptr;
  };
  Sender(const Options& options, Staging staging, Link& link, Holder& holder);

  // Makes the request known. None of it is read before it is published. Decode ranks that opened it early are
  // answered. exists: it is known already. at_limit: max_offers.
  Status offer(const OfferRequest& offer, uint64_t now_ns);
  // Announces that these positions of these layers (of the whole model) of a component are computed and in memory.
  // Any order, repeats allowed. stale_handle: no such offer, or it has ended (the prefill may stop).
  Status publish(const RequestId& request, Component component, uint32_t first_layer, uint32_t layers, Range range);
  // Publishes everything in the offer.
  Status publish_all(const RequestId& request);
  // Ends an offer. Decode ranks get code and text, even one that opens the request only now: its message may have
  // been in flight. Not after max_early_opens later aborts, or when the request is offered again. stale_handle: no
  // such offer, or it has ended.
  Status abort(const RequestId& request, Code code, const std::string& why);

  void on_message(PeerId peer, ConstBytes bytes, uint64_t now_ns);
  // Handles the end of a push. A token of another rank, or another user, is ignored.
  void on_pushed(uint64_t token, Code status);
  void on_writable(PeerId peer);
  void on_closed(PeerId peer);
  // Ends everything due at now_ns.
  void tick(uint64_t now_ns);
  // Returns when tick() has something to do; kNever.
  [[nodiscard]] uint64_t next_deadline() const;

  // Takes the next end of an offer, in the order of their occurrence. False: none.
  bool take_event(SenderEvent* event);
  [[nodiscard]] const SenderStats& stats() const noexcept { return stats_; }
  [[nodiscard]] uint32_t offers() const noexcept { return static_cast<uint32_t>(offers_.size()); }
  [[nodiscard]] uint32_t early_opens() const noexcept { return static_cast<uint32_t>(early_.size()); }
  [[nodiscard]] uint32_t staging_taken() const noexcept { return staging_.slots() - staging_.free(); }
  // Returns the slots of shared memory that decode ranks read now.
  [[nodiscard]] uint32_t shared_taken() const noexcept;
  // Returns the slots of device memory being sent from.
  [[nodiscard]] uint32_t direct_taken() const noexcept { return direct_.taken(); }
  [[nodiscard]] uint64_t direct_failures() const noexcept { return direct_.failures(); }

 private:
  enum class SinkState : uint8_t { live, done, failed };
  struct Sink {
    SinkState state = SinkState::live;
    PeerId peer = 0;
    uint64_t session = 0;
    uint64_t deadline_ns = kNever;
    uint32_t in = 0, out = 0;  // sequence numbers
    uint32_t pulls = 0;        // queued or being pushed
    bool asked = false;        // has asked for shared memory
  };
  // Memory of one mover's device, made when the first decode rank asks.
  struct Sharing {
    SliceMover* mover = nullptr;
    std::unique_ptr<SharedSlots> slots;
    bool making = false;
    std::vector<SharedSlots::Reader> waiting;
    std::vector<PeerId> notified;  // connections that know of it
  };
  struct Offer {
    OfferRequest request;
    std::vector<std::vector<IntervalSet>> published;  // [part][layer of the part]
    uint16_t sink_count = 0;                          // 0 = no rank has opened it yet
    std::map<uint16_t, Sink> sinks;                   // by decode rank
    uint32_t readers = 0;                             // zero-copy pushes, and gathers of movers
    uint64_t bytes = 0;                               // sent bytes
    bool ended = false;
    Status failure;
    Status refusal;  // of the last decode rank that could not be admitted
  };
  struct Early {
    PeerId peer = 0;
    Header header;
    Open open;
    uint64_t expires_ns = kNever;
  };
  using SinkName = SharedSlots::Reader;
  struct SinkKey {
    PeerId peer = 0;
    uint16_t rank = 0;
    uint64_t session = 0;
    auto operator<=>(const SinkKey&) const = default;
  };
  // A pull, and the push that answers it.
  struct Push {
    SinkName sink;
    PullEntry entry;
    wire::Coding coding;  // coding to apply; zero: plain
    uint64_t name = 0;    // 0 = free, or queued
    PeerId peer = 0;
    bool straight = false;
    bool moving = false;              // a mover gathers it, or it is being coded; not yet passed to the link
    SharedSlots* shared = nullptr;    // shared memory in which the payload stays
    uint32_t shared_slot = 0;         // slot of the payload in that memory
    DirectStaging::Slot direct = {};  // slot with the payload, if any
    bool apart = false;               // the payload is sent under a tag of its own
    uint8_t under_way = 0;            // pushes that the link has not ended
    Code failed = Code::ok;           // error of one of them
    uint64_t payload_bytes = 0;       // set when it is sent
  };
  using Offers = std::map<RequestId, Offer>;

  Offer* find(const RequestId& request);
  Sink* find(const SinkName& name);
  void opened(PeerId peer, const Header& header, Open open, uint64_t now_ns);
  Status admit(Offer& offer, PeerId peer, const Header& header, const Open& open, uint64_t now_ns);
  // Returns a refusal that a retry would not change: the first fact that differs, or that this decode rank cannot
  // open sealed slices.
  [[nodiscard]] Status at_odds(const Offer& offer, PeerId peer, const Header& header, const Open& open) const;
  // Fails a decode rank that differs from this side, and with it an offer that no other rank has opened.
  void turn_away(Offer& offer, const Header& header, const Open& open, const Status& why);
  void refuse(PeerId peer, const Header& header, const Status& why, uint32_t sequence = 0);
  void accept(Offer& offer, uint16_t rank, Sink& sink);
  void send(Sink& sink, uint16_t rank, const Body& body);
  // Handles the next message of a decode rank's session, behind its open.
  void answer(Offer& offer, const SinkName& name, Sink& sink, const Body& body);
  void pulled(Offer& offer, uint16_t rank, Sink& sink, const Pull& pull);
  Status check_pull(const Offer& offer, const Sink& sink, const PullEntry& entry) const;
  static Status must_be_sealed();
  // Decides how to answer a pull.
  [[nodiscard]] SliceCoder::Plan plan_for(const PullEntry& entry, const wire::Coding& coding) const;
  void pump();
  void push(const Push& next, Offer& offer, Sink& sink, uint32_t slot);
  void gather(Offer& offer, const Sink& sink, const LocalPart& local, uint32_t slot);
  void gathered(uint64_t name, const SliceMove& move, const Status& status);
  // Starts coding a slice with payload and hashes in its slot; it is sent afterwards.
  void begin_coding(Offer& offer, uint32_t slot, const SliceShape& shape);
  void encoded(uint64_t name, const Status& status, uint64_t bytes);
  [[nodiscard]] SliceHead head_of(const Offer& offer, const Push& push, const SliceShape& shape) const;
  // Sets pieces_ of a plain slice: its front, and its payload unless that stays in place.
  void lay(uint32_t slot, const SliceShape& shape);
  // Returns true if a pull is answered with front and payload apart.
  static bool goes_apart(const PullEntry& entry, const wire::Coding& coding);
  // Takes a slot of the device for the payload of a pull, if it may be sent from there and one is free.
  void place_direct(const LocalPart& local, uint32_t slot, SliceMove& move);
  // Passes pieces_ to the link.
  Code push_pieces(const Sink& sink, Push& push);
  // Runs when all pushes of a slot have ended. Returns true if it must be sent again, through host memory.
  bool sent_direct(const Push& push);
  void free_push(uint32_t slot);
  // Sends pieces_, of a slice with `payload_bytes` bytes of payload.
  void send_pieces(Offer& offer, Sink& sink, uint32_t slot, uint64_t payload_bytes);
  // Chooses the place for the payload of a pull: shared memory, if allowed and a slot is free, else staging.
  void place(const Sink& sink, const LocalPart& local, uint32_t slot, SliceMove& move);
  void share(Offer& offer, uint16_t rank, Sink& sink, const Map& map);
  void shared(const SliceMover* mover, Result<SharedMemory> memory);
  void tell_shared(Sink& sink, uint16_t rank, Sharing& sharing);
  Sharing& sharing_of(SliceMover& mover);
  // Returns the mover of the first part that shares memory; null: none does.
  static SliceMover* mover_that_shares(std::span<const LocalPart> parts);
  // Writes the head in front of the hashes, and sends pieces_.
  void send_slice(Offer& offer, Sink& sink, uint32_t slot, const SliceShape& shape);
  // Ends one decode rank's session. tell: with an ABORT.
  void end_sink(Offer& offer, uint16_t rank, SinkState state, const Status& why, bool tell);
  void end_offer_if_due(Offer& offer);
  void end_offer(Offer& offer, const Status& status);
  // Ends the offer, and refuses ranks that open it later.
  void give_up(Offer& offer, const Status& why);
  void forget_if_quiet(const RequestId& request);

  Options options_;
  Staging staging_;
  Link& link_;
  Holder& holder_;
  Outbox outbox_;
  TransferNames names_;
  SliceCopy copy_;
  Offers offers_;
  std::map<SinkKey, RequestId> sinks_;
  std::deque<Early> early_;
  std::deque<std::pair<RequestId, Status>> given_up_;  // the latest
  std::deque<Push> pulls_;                             // without a slot yet
  std::vector<Push> pushes_;                           // one a staging slot
  std::vector<std::unique_ptr<Sharing>> sharings_;     // one a mover, so few
  DirectStaging direct_;
  std::vector<uint64_t> hashes_;
  std::vector<ConstBytes> pieces_;
  std::deque<SenderEvent> events_;
  SenderStats stats_;
  std::shared_ptr<Sender*> self_ = std::make_shared<Sender*>(this);  // ends of moves and codings may come later
};

}  // namespace kvbm::cluster::session
