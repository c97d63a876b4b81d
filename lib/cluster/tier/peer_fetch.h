// Reads from other nodes: records are fetched into staging. From there they are lent to a receiver that reads them
// once and checks them, or copied into the caller's memory. Each leaf is compared in the same pass unless the
// receiver does it. Part of the tier of other nodes.
//
// At the deadline the caller's memory is free, and only staging waits for late data. The staging pool bounds the
// records in flight or lent; items that wait for staging end at their deadline. Staging is given out in the order of
// the calls, and a batch is lent only if half of the pool holds all of it: so a batch, which ends with its last
// record, never keeps that record waiting by what it holds. Thread: get() any. Small copies, and ends for receivers
// that check, are made on the links' thread, at once: a caller that waits for a small record usually drives the links
// itself. The other copies and ends run on the core's executor.
//
// A record that arrives coded or sealed is decoded from staging into the caller's memory, and never lent
// (peer_fetch_coded.cc).
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "cluster/link/staging_pool.h"
#include "cluster/tier/peer_in_place.h"
#include "cluster/tier/peer_tier_context.h"

namespace kvbm::cluster {

class PeerFetch final : public StagingOwner, public std::enable_shared_from_this<PeerFetch> {
 public:
  explicit PeerFetch(std::shared_ptr<PeerTierContext> context)
      : context_(std::move(context)), in_place_(context_), staging_(context_->options.staging_bytes) {}

  void get(std::unique_ptr<tier::GetBatch> batch);
  void staging_quiet(uint64_t cookie) override;
  // Bytes of staging in use or in quarantine. Thread: any.
  [[nodiscard]] uint64_t staging_used() const { return staging_.used(); }

 private:
  // Limits of one request to a node, so that copies begin while the rest is still in flight.
  static constexpr uint64_t kFetchBytes = 8ULL << 20;
  static constexpr size_t kFetchItems = 256;
  using Place = PeerPlaces::Place;
  struct GetOp {
    std::unique_ptr<tier::GetBatch> batch;
    std::vector<Place> where;
    std::atomic<size_t> left{0};
    uint64_t deadline_ns = kNever;
    uint64_t no_room_since_ns = 0;  // since when a node has had no memory for this batch; 0: it has
    bool lends = false;
  };
  struct Waiting {
    std::shared_ptr<GetOp> op;
    size_t item = 0;
  };
  // One request to a node, for the choice between plain and coded: reported to the coder when its last piece has been
  // delivered. Thread: pieces end on any.
  struct Request {
    Request(std::shared_ptr<LinkCoder> by, const NodeId& from, LinkCoder::Asked how)
        : coder(std::move(by)), node(from), asked(how) {}
    ~Request() { coder->answered(asked, coded.load(std::memory_order_relaxed), got.load(std::memory_order_relaxed)); }
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

    const std::shared_ptr<LinkCoder> coder;
    const NodeId node;
    const LinkCoder::Asked asked;
    std::atomic<uint64_t> got{0};    // plain bytes
    std::atomic<bool> coded{false};  // a piece arrived coded
  };
  struct Piece {
    Waiting what;
    MutableBytes staging;
    uint32_t head_bytes = 0;  // of the record as it arrived
    size_t bytes = 0;         // head and payload
    bool coded = false;       // must be decoded
    std::shared_ptr<Request> request;
    [[nodiscard]] ConstBytes head() const { return ConstBytes(staging).first(head_bytes); }
    [[nodiscard]] ConstBytes payload() const { return ConstBytes(staging).first(bytes).subspan(head_bytes); }
  };
  using Pieces = std::vector<Piece>;

  static const Place& where(const Waiting& what) { return what.op->where[what.item]; }
  static tier::GetItem& item(const Waiting& what) { return what.op->batch->items[what.item]; }
  [[nodiscard]] uint64_t now_ns() const noexcept { return context_->mesh.executor().clock().now_ns(); }
  // Sends the requests in waiting_ over their nodes' links.
  void begin(const std::shared_ptr<GetOp>& op, const std::vector<size_t>& items);
  // Read from the memory of nodes of this machine (peer_fetch_in_place.cc).
  void read_here(const std::shared_ptr<GetOp>& op, const std::vector<size_t>& items);
  void read_some(const std::shared_ptr<GetOp>& op, const std::vector<size_t>& items);
  Code read_one(tier::GetItem& item, const Place& where) const;
  void ask_again(const NodeId& node, std::vector<Identity> ids);
  void pump();
  bool refused(const Waiting& next, const PeerLink* link);
  MutableBytes take_staging(size_t bytes, bool& none);
  void give_back(MutableBytes staging);
  void end_late();
  void fetched(FetchBatch& answer, Pieces& pieces);
  void failed(const FetchItem& said, const Piece& piece);
  void ask_later(const Waiting& what);
  void arrived(Pieces pieces);
  void elsewhere(Pieces pieces);
  // Returns the staging that a record may need.
  [[nodiscard]] size_t room_of(const Place& place) const;
  std::shared_ptr<Request> ask(const NodeId& node) const;
  Code look(Piece& piece, const FetchItem& came) const;
  Code decode(const Piece& piece);
  void copy_out(Pieces pieces);
  Code deliver(const Piece& piece);
  Code lend(tier::GetItem& target, ConstBytes payload, MutableBytes staging);
  void end_item(const Waiting& what, Code code);
  void items_done(const std::shared_ptr<GetOp>& op, size_t n);

  const std::shared_ptr<PeerTierContext> context_;
  const PeerInPlace in_place_;
  StagingPool staging_;
  std::atomic<bool> starved_{false};  // an item waits for staging
  // Used on the links' thread only.
  std::deque<Waiting> waiting_;
  std::vector<Waiting> later_;                   // for a node without free memory; a timer is set for them
  std::map<uint64_t, MutableBytes> quarantine_;  // by cookie
  std::shared_ptr<PeerFetch> self_;              // while there is any
  uint64_t last_cookie_ = 0;
  uint64_t first_late_ns_ = kNever;  // no waiting item has an earlier deadline
  uint64_t armed_ns_ = kNever;       // the timer set for it
};

}  // namespace kvbm::cluster
