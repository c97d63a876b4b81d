// The prefill side of sessions, for one rank: offers a request's blocks, says what has been computed, and
// serves pulls out of engine memory. A decode node that gives a running request away is a Sender too.
//
// A state machine: messages, completions and ticks in; messages, pushes, hold and release out. No thread, no
// wait, no clock of its own; one thread at a time. Bounded: offers, early openings, pulls and staging all have
// limits; what has ended is forgotten at once, but for staging and straight pushes that a transfer still reads. Payloads
// of blocks on a device may stay in memory that the decode side has mapped (sender_shared.cc), or be sent out of memory of
// the device (sender_direct.cc).
// Promises: every offer ends exactly once, by its deadline; hold() is followed by exactly one release(), after
// the last byte of engine memory was read. Protocol: README.md.
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
    // Pieces of engine memory at least this long are sent from where they lie. 0 = never.
    uint64_t straight_from_bytes = 256 * 1024;
    size_t peer_outbox_bytes = 1 << 20;
    // A copy of a mover or the coding of a slice has ended: there may be events. Called outside of every other call.
    std::function<void()> moved;
    SliceCoder* coder = nullptr;  // outlives it; null: slices go plain
    // Shorter payloads are not sent out of a device's memory: a transport would not take the way that it is for.
    uint64_t least_direct_bytes = 64 * 1024;
    // What is worth a line in the log, and is told nobody else. May be empty.
    std::function<void(const std::string&)> note;
    // Which links are missing and why, for an offer that nobody has opened; null, or empty text: none is known to be.
    std::function<std::string()> unlinked = nullptr;
    // How people know who is at a connection. May be empty.
    std::function<std::string(PeerId)> named = nullptr;
  };
  Sender(const Options& options, Staging staging, Link& link, Holder& holder);

  // Makes the request known. Nothing of it is read before it is published. Decode ranks that asked early are
  // answered. exists: it is known already. at_limit: max_offers.
  Status offer(const OfferRequest& offer, uint64_t now_ns);
  // These positions of these layers (of the whole model) of a component are computed and in memory. Any order,
  // repeats allowed. stale_handle: no such offer, or it has ended (the prefill may stop).
  Status publish(const RequestId& request, Component component, uint32_t first_layer, uint32_t layers, Range range);
  // Everything that the offer has.
  Status publish_all(const RequestId& request);
  // Decode ranks are told code and text, also one that opens the request only now: it may have been on its way. Not
  // after max_early_opens later aborts, or when the request is offered again. stale_handle: no such offer, or it has
  // ended.
  Status abort(const RequestId& request, Code code, const std::string& why);

  void on_message(PeerId peer, ConstBytes bytes, uint64_t now_ns);
  // Another rank's, or another user's, token is ignored.
  void on_pushed(uint64_t token, Code status);
  void on_writable(PeerId peer);
  void on_closed(PeerId peer);
  // Ends what is due at now_ns.
  void tick(uint64_t now_ns);
  // When tick() has something to do; kNever.
  [[nodiscard]] uint64_t next_deadline() const;

  // Ends of offers, in the order in which they happened. False: none.
  bool take_event(SenderEvent* event);
  [[nodiscard]] const SenderStats& stats() const noexcept { return stats_; }
  [[nodiscard]] uint32_t offers() const noexcept { return static_cast<uint32_t>(offers_.size()); }
  [[nodiscard]] uint32_t early_opens() const noexcept { return static_cast<uint32_t>(early_.size()); }
  [[nodiscard]] uint32_t staging_taken() const noexcept { return staging_.slots() - staging_.free(); }
  // Slots of shared memory that decode ranks read now.
  [[nodiscard]] uint32_t shared_taken() const noexcept;
  // Slots of a device's memory that are sent from.
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
    bool asked = false;        // for shared memory
  };
  // Memory of one mover's device, made when the first decode rank asks.
  struct Sharing {
    SliceMover* mover = nullptr;
    std::unique_ptr<SharedSlots> slots;
    bool making = false;
    std::vector<SharedSlots::Reader> waiting;
    std::vector<PeerId> told;  // connections that know of it
  };
  struct Offer {
    OfferRequest request;
    std::vector<std::vector<IntervalSet>> published;  // [part][layer of the part]
    uint16_t sink_count = 0;                          // 0 = nobody has opened yet
    std::map<uint16_t, Sink> sinks;                   // by decode rank
    uint32_t readers = 0;  // straight pushes, and gathers of movers
    uint64_t bytes = 0;  // that were sent
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
  struct QueuedPull {
    SinkName sink;
    PullEntry entry;
    SliceCoding coding;
  };
  struct Push {
    uint64_t name = 0;  // 0 = free
    SinkName sink;
    PeerId peer = 0;
    bool straight = false;
    bool moving = false;  // a mover gathers it, or it is coded; the link does not know of it yet
    PullEntry entry;
    SliceCoding coding;  // to be coded or sealed so; zero: plain
    SharedSlots* shared = nullptr;  // the payload stays in
    uint32_t shared_slot = 0;       // this one
    DirectStaging::Slot direct = {};  // the payload is in
    bool apart = false;               // it goes under a tag of its own
    uint8_t under_way = 0;            // pushes that the link has not ended
    Code failed = Code::ok;           // of one of them
    uint64_t payload_bytes = 0;       // once it is sent
  };
  using Offers = std::map<RequestId, Offer>;

  Offer* find(const RequestId& request);
  Sink* find(const SinkName& name);
  void opened(PeerId peer, const Header& header, Open open, uint64_t now_ns);
  Status admit(Offer& offer, PeerId peer, const Header& header, const Open& open, uint64_t now_ns);
  // What no other try would change: the first fact that differs, or that this decode rank cannot open what is sealed.
  [[nodiscard]] Status at_odds(const Offer& offer, PeerId peer, const Header& header, const Open& open) const;
  // A decode rank that is at odds with this side fails, and with it an offer that nobody else has opened.
  void turn_away(Offer& offer, const Header& header, const Open& open, const Status& why);
  void refuse(PeerId peer, const Header& header, const Status& why, uint32_t sequence = 0);
  void accept(Offer& offer, uint16_t rank, Sink& sink);
  void send(Sink& sink, uint16_t rank, const Body& body);
  void pulled(Offer& offer, uint16_t rank, Sink& sink, const Pull& pull);
  Status check_pull(const Offer& offer, const Sink& sink, const PullEntry& entry) const;
  static Status must_be_sealed();
  // How a pull is answered.
  [[nodiscard]] SliceCoder::Plan plan_for(const PullEntry& entry, const SliceCoding& coding) const;
  void pump();
  void push(const QueuedPull& next, Offer& offer, Sink& sink, uint32_t slot);
  void gather(Offer& offer, const Sink& sink, const LocalPart& local, uint32_t slot);
  void gathered(uint64_t name, const SliceMove& move, const Status& status);
  // A slice whose payload and hashes are in its slot is coded, and then sent.
  void begin_coding(Offer& offer, uint32_t slot, const SliceShape& shape);
  void encoded(uint64_t name, const Status& status, uint64_t bytes);
  [[nodiscard]] SliceHead head_of(const Offer& offer, const Push& push, const SliceShape& shape) const;
  // pieces_ of a plain slice: its front, and its payload where it does not stay.
  void lay(uint32_t slot, const SliceShape& shape);
  // Whether a pull is answered with front and payload apart.
  static bool goes_apart(const PullEntry& entry, const SliceCoding& coding);
  // A slot of the device for the payload of a pull, if it may be sent from there and there is one.
  void place_direct(const LocalPart& local, uint32_t slot, SliceMove& move);
  // Hands pieces_ to the link.
  Code push_pieces(const Sink& sink, Push& push);
  // All pushes of a slot have ended: whether it is to be sent once more, through host memory.
  bool sent_direct(const Push& push);
  void free_push(uint32_t slot);
  // Sends pieces_, of a slice with so many bytes of payload.
  void send_pieces(Offer& offer, Sink& sink, uint32_t slot, uint64_t payload_bytes);
  // Where the payload of a pull shall lie: in shared memory, if it may and there is room, else in staging.
  void place(const Sink& sink, const LocalPart& local, uint32_t slot, SliceMove& move);
  void share(Offer& offer, uint16_t rank, Sink& sink, const Map& map);
  void shared(const SliceMover* mover, Result<SharedMemory> memory);
  void tell_shared(Sink& sink, uint16_t rank, Sharing& sharing);
  Sharing& sharing_of(SliceMover& mover);
  // Of the first part whose mover shares memory; null: none does.
  static SliceMover* mover_that_shares(std::span<const LocalPart> parts);
  // Puts the head before the hashes that are there, and sends pieces_.
  void send_slice(Offer& offer, Sink& sink, uint32_t slot, const SliceShape& shape);
  // Ends one decode rank's session. tell: with an ABORT.
  void end_sink(Offer& offer, uint16_t rank, SinkState state, const Status& why, bool tell);
  void end_offer_if_due(Offer& offer);
  void end_offer(Offer& offer, const Status& status);
  // The same, and whoever opens it later is told.
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
  std::deque<QueuedPull> pulls_;
  std::vector<Push> pushes_;  // one a staging slot
  std::vector<std::unique_ptr<Sharing>> sharings_;  // one a mover, few
  DirectStaging direct_;
  std::vector<uint64_t> hashes_;
  std::vector<ConstBytes> pieces_;
  std::deque<SenderEvent> events_;
  SenderStats stats_;
  std::shared_ptr<Sender*> self_ = std::make_shared<Sender*>(this);  // for ends of movers and of coding; they may come later
};

}  // namespace kvbm::cluster::session
