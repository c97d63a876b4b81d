// The decode side of sessions, for one rank: opens a session with every prefill rank, pulls published slices into
// staging, verifies them while they are written into the engine's blocks, and reports which layers are in place.
//
// A state machine: messages, completions and ticks are its input; messages, posts and events its output. No thread,
// no wait, no clock of its own; one thread at a time. Bounded: sessions, staging in all, staging a session, queued
// messages. Promises: every session ends exactly once, by its deadline plus the time of device work in progress then.
// A layer is reported only when every byte of it is in place and had the hash that the prefill side computed while
// reading its own memory. After the end nothing writes into the targets any more. Transfers write into staging only,
// which stays in use until their tokens have ended, and copies that a mover has begun are awaited. A session that
// fails leaves its targets undefined, except for reported layers. Payloads of a device of this machine may be read
// where the prefill side has put them (receiver_shared.cc); others are written into device memory directly
// (receiver_direct.cc). README.md.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cluster/session/block_map.h"
#include "cluster/session/coded_slice.h"
#include "cluster/session/direct_staging.h"
#include "cluster/session/intervals.h"
#include "cluster/session/link.h"
#include "cluster/session/outbox.h"
#include "cluster/session/plan.h"
#include "cluster/session/requests.h"
#include "cluster/session/slice.h"
#include "cluster/session/staging.h"
#include "cluster/session/wire.h"

namespace kvbm::cluster::session {

class Receiver {
 public:
  struct Options {
    uint16_t transfer_base = 2;  // top bits of tags, tokens and session ids; differs between users of a link
    uint32_t max_sessions = 4096;
    uint32_t attempts = 3;  // for one slice, before the session fails as damaged
    // Limit of slots still held by transfers of ended sessions; a peer at the limit is refused.
    uint32_t max_quarantined_per_peer = 64;
    size_t peer_outbox_bytes = 1 << 20;
    // Called when a mover's copy or a decoding has ended: there may be events. Called outside of every other call.
    std::function<void()> moved;
    SliceCoder* coder = nullptr;  // outlives this object; null: slices are requested plain
    // Shorter payloads are not written into device memory: a transport would not use hardware for them.
    uint64_t least_direct_bytes = 64 * 1024;
    // Gets messages for the log that are reported nowhere else. May be empty.
    std::function<void(const std::string&)> note;
  };
  Receiver(const Options& options, Staging staging, Link& link);

  // Opens a session and asks every source. A refusal names the fault; nothing was sent then.
  Result<SessionId> open(OpenRequest request, uint64_t now_ns);
  // Ends the session with `code` and notifies the sources. Error stale_handle: the session has already ended.
  Status abort(SessionId session, Code code, const std::string& why);

  void on_message(PeerId peer, ConstBytes bytes);
  void on_received(uint64_t token, Code status, uint64_t bytes);
  void on_writable(PeerId peer);
  void on_closed(PeerId peer);
  void tick(uint64_t now_ns);
  [[nodiscard]] uint64_t next_deadline() const;

  bool take_event(ReceiverEvent* event);
  [[nodiscard]] const ReceiverStats& stats() const noexcept { return stats_; }
  // Includes ended sessions that still wait for a mover.
  [[nodiscard]] uint32_t sessions() const noexcept { return static_cast<uint32_t>(sessions_.size() + ending_.size()); }
  [[nodiscard]] uint32_t staging_taken() const noexcept { return staging_.slots() - staging_.free(); }
  // Returns the slots in use by transfers of ended sessions.
  [[nodiscard]] uint32_t quarantined() const noexcept;
  // Returns how many prefill ranks' shared memory is mapped.
  [[nodiscard]] uint32_t mapped() const noexcept;
  // Returns the slots of device memory that payloads are written into, or read from.
  [[nodiscard]] uint32_t direct_taken() const noexcept { return direct_.taken(); }
  [[nodiscard]] uint64_t direct_failures() const noexcept { return direct_.failures(); }

 private:
  enum class SourceState : uint8_t { asked, accepted, gone };
  using Ready = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;
  struct Source {
    SourceRank rank;
    SourceState state = SourceState::asked;
    uint32_t in = 0, out = 0;  // sequence numbers
    std::vector<Part> parts;
    std::vector<uint32_t> grains;  // like parts, from ACCEPT
    uint32_t slice_bytes = 0;
    uint16_t ways = 0;                                // from ACCEPT
    std::vector<std::vector<IntervalSet>> published;  // [part][layer of the part]
    uint32_t left = 0;                                // slices that are not in place
    uint32_t moving = 0;  // part of `left`, with a mover or being decoded: nothing more is needed from the rank
    Ready ready;          // published slices, lowest layer first
    Pull batch;           // posted, not requested yet
    bool done = false;    // DONE was sent: nothing more is needed
  };
  struct SliceState {
    enum class Step : uint8_t { waiting, ready, pulling, done };
    Step step = Step::waiting;
    uint8_t attempts = 0;
    uint32_t grain = 0;  // grain of the request
  };
  struct Session {
    SessionId id = 0;
    OpenRequest request;
    std::vector<Source> sources;
    bool planned = false;
    Plan plan;
    std::vector<SliceState> slices;
    std::vector<uint32_t> layer_left;  // like plan.layers()
    uint32_t layers_left = 0;
    uint64_t under_way = 0;  // bytes of staging in use
    uint32_t moving = 0;     // copies that movers have begun
  };
  // A session that has ended except for movers' writes.
  struct Ending {
    ReceiverEvent event;
    uint32_t moving = 0;
  };
  // One of the two receives of a transfer, if its front and its payload are sent apart.
  struct Post {
    bool ended = false;
    Code code = Code::ok;
    uint64_t bytes = 0;
  };
  struct Transfer {
    uint64_t name = 0;  // 0 = free
    PeerId peer = 0;
    SessionId session = 0;  // may have ended
    uint32_t slice = 0;
    uint64_t bytes = 0;      // of the plain slice with its front
    bool moving = false;     // has arrived, and a mover copies it, or it is being decoded
    bool may_share = false;  // requested with that way
    uint64_t front_bytes = 0;
    bool is_shared = false;  // arrived by that way
    SliceCoder::Asked asked = {};
    bool coded = false;  // arrived coded
    bool right = false;  // in place, and read from the rank
    // Device memory that the payload alone may be written to. Then two receives are pending: of the whole slice, and of
    // the payload.
    DirectStaging::Slot direct = {};
    Post whole = {}, payload = {};
    bool is_direct = false;  // the payload was written there
  };
  // Shared memory of a prefill rank, as mapped for a mover of this side.
  struct Mapped {
    enum class Step : uint8_t { asked, mapping, there, refused };
    PeerId peer = 0;
    uint16_t rank = 0;
    SliceMover* mover = nullptr;
    Step step = Step::asked;
    SessionId by = 0;  // session that asked
    SharedMemory memory;
    uint32_t slots = 0;
    uint64_t slot_bytes = 0;
    std::string name;
  };

  Status check_open(const OpenRequest& request, uint64_t now_ns) const;
  Session* find(SessionId id);
  void send(Session& session, Source& source, const Body& body, Type type = Type::done);
  Status apply(Session& session, Source& source, Body& body);
  Status accepted(Session& session, Source& source, Accept& accept);
  Status published(Session& session, size_t source, const Published& published);
  Status plan_if_known(Session& session);
  Status make_plan(Session& session);
  void mark_ready(Session& session, size_t source, size_t layer);
  // Posts and requests as much as budgets allow, one slice a session in turn.
  void pump();
  Result<bool> pull_one(Session& session);
  // Returns the grain at which each leaf is one run of memory on both sides, if one of them is a device's.
  static uint32_t grain_for(const Session& session, const Slice& slice);
  Source* next_source(Session& session);
  // Returns true if a requested slice may arrive coded; a batch is requested in one way.
  [[nodiscard]] bool may_come_coded(const Source& source) const noexcept {
    return options_.coder != nullptr && (source.ways & kWayCoded) != 0;
  }
  SliceCoder::Asked ask_coded(Session& session, Source& source, const SliceState& state, uint64_t payload_bytes);
  [[nodiscard]] SliceInSlot slice_in(const Session& session, const Transfer& transfer, uint32_t slot) const;
  // Starts decoding an arrived slice: true. False: it is not coded, or must not be used.
  bool begin_decoding(Session& session, uint32_t slot, uint64_t bytes, bool* right);
  void decoded(uint64_t name, const Status& status);
  // Runs after landed(): reports the outcome, and releases the slot unless a mover uses it.
  void after_landing(uint32_t slot, Code status, bool right, bool moving);
  // Settles a slice that arrived, or was moved. Not ok: the session cannot continue.
  Status settled(Session& session, const Transfer& transfer, Code code, bool right);
  // Checks that it is the requested slice, and then writes it, or (true in `moving`) starts a mover.
  bool landed(Session& session, const Transfer& transfer, uint32_t slot, bool* moving);
  // Shared memory: requests it, takes the answer, maps it.
  void ask_to_share(Session& session, Source& source, const Accept& accept);
  Status told_shared(Session& session, Source& source, const Shared& shared);
  void mapped(PeerId peer, uint16_t rank, const SliceMover* mover, Result<SharedMemory> memory);
  void refused(Mapped& mapped, const Status& why);
  Mapped* find_mapped(PeerId peer, uint16_t rank, const SliceMover* mover);
  // Returns true if a pull of this may use shared memory.
  bool may_share(const Session& session, const Slice& slice, const Extent& extent);
  // Sets the payload to `place` in the rank's shared memory. Returns false if the memory has no such place.
  bool place_shared(const Transfer& transfer, const SourceRank& rank, uint32_t place, const LocalPart& target,
                    SliceMove& move);
  // Posts a payload alone in device memory, if that is allowed and a slot is free; the pull's own post exists
  // already.
  bool post_direct(const Session& session, Source& source, const Extent& extent, uint64_t payload_bytes,
                   Transfer& transfer);
  // Notes the end of one post of two. Returns true when both have ended; the result is then in `status` and `bytes`.
  bool both_ended(Transfer& transfer, uint64_t token, Code& status, uint64_t& bytes);
  // Reports the result of a payload that was written into device memory.
  void judge_direct(const Transfer& transfer, const Status& status);
  void cancel(const Transfer& transfer);
  // Releases the pull's slot in shared memory: nothing reads it any more.
  void release(const Transfer& transfer);
  static const LocalPart& target_of(const Session& session, const Extent& extent);
  void moved(uint64_t name, const Status& status);
  void free_slot(uint32_t slot);
  void in_place(Session& session, uint32_t slice);
  void done_if_all(Session& session, Source& source);
  void end(SessionId id, const Status& status);

  Options options_;
  Staging staging_;
  Link& link_;
  Outbox outbox_;
  TransferNames names_;
  SliceCopy copy_;
  uint64_t next_session_;
  SessionId last_served_ = 0;
  std::map<SessionId, Session> sessions_;
  std::map<SessionId, Ending> ending_;
  std::set<SessionId> wanting_;      // sessions with published slices not requested yet
  std::vector<Transfer> transfers_;  // one a staging slot
  DirectStaging direct_;
  std::vector<uint64_t> hashes_;
  std::vector<std::unique_ptr<Mapped>> mapped_;  // one a prefill rank and mover; until the connection closes
  std::deque<ReceiverEvent> events_;
  ReceiverStats stats_;
  std::shared_ptr<Receiver*> self_ = std::make_shared<Receiver*>(this);  // ends of moves and decodings may come later
};

}  // namespace kvbm::cluster::session
