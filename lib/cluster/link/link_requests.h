// The requesting half of a link: finds, fetches, leases, offers and status, cut into messages, held to the peer's
// limits, each ended exactly once by its deadline. Internal to peer_link.
//
// Operations without staging do not wait for it: fetches have a queue of their own, and never take the last request
// that the peer accepts at once.
//
// Staging: an item's memory is named to the transport before the peer is asked. If the item ends first (deadline,
// cancel, dead peer), the transport is asked to release the memory, which counts as quarantined until it confirms.
// Callbacks are collected and run by drain() only. Thread: the link's.
#pragma once

#include <deque>

#include "cluster/link/link_types.h"
#include "cluster/link/slots.h"
#include "copy/flat_table.h"

namespace kvbm::cluster {

class LinkRequests {
 public:
  using StatusDone = UniqueFunction<void(Code, const wire::NodeStatus&)>;
  using LeaseDone = UniqueFunction<void(Code, uint64_t granted_ns)>;
  using CodeDone = UniqueFunction<void(Code)>;

  LinkRequests(LinkHost& host, PeerLink& link, LinkStats& stats) : host_(host), link_(link), stats_(stats) {}

  // Each returns the operation's name for cancel(); 0: it has ended already.
  uint64_t find(std::unique_ptr<FindBatch> batch);
  uint64_t fetch(std::unique_ptr<FetchBatch> batch);
  uint64_t offer(std::unique_ptr<OfferBatch> batch, uint64_t lease);
  uint64_t ask_status(uint64_t deadline_ns, StatusDone done);
  uint64_t renew(uint64_t lease, uint64_t lease_ns, uint64_t deadline_ns, LeaseDone done);
  uint64_t invalidate(const NamespaceId& base, uint64_t epoch, uint64_t deadline_ns, CodeDone done);
  bool cancel(uint64_t operation);

  // Allows sending; `peer_limit`: number of requests that the peer serves at once.
  void begin(uint32_t peer_limit);
  // Takes an answer. Not ok: the peer broke the protocol.
  Status take(const wire::Head& head, ConstBytes body);
  void received(uint64_t token, Code code, uint64_t bytes);
  // Sends queued requests, as many as the peer's limits on requests in flight allow.
  void pump();
  void expire(uint64_t now_ns);
  [[nodiscard]] uint64_t next_deadline() const noexcept { return next_deadline_; }
  // Ends every operation with `code`, including later ones.
  void end(Code code);
  [[nodiscard]] bool has_finished() const noexcept { return !finished_.empty() || !quiet_.empty(); }
  void drain();
  // Returns the leases of offers that the peer does not want, or that ended before an answer.
  [[nodiscard]] std::vector<uint64_t> unwanted_leases() noexcept { return std::exchange(unwanted_, {}); }

 private:
  enum class Kind : uint8_t { find, fetch, offer, status, renew, invalidate };
  enum class ItemState : uint8_t { waiting, asked, ending, done };
  struct Item {
    uint64_t token = 0;
    ItemState state = ItemState::waiting;
    Code ending = Code::ok;
  };
  struct Operation {
    Kind kind = Kind::find;
    bool queued = false;
    uint64_t deadline_ns = kNever;
    uint32_t next = 0;        // the first item not requested yet
    uint32_t unresolved = 0;  // number of items
    std::unique_ptr<FindBatch> find;
    std::unique_ptr<FetchBatch> fetch;
    std::unique_ptr<OfferBatch> offer;
    std::vector<Item> items;         // of a fetch
    std::vector<uint64_t> requests;  // not answered yet
    wire::Lease renew;
    wire::Invalidate invalidate;
    uint64_t lease = 0;
    Code code = Code::ok;
    wire::NodeStatus status;
    StatusDone status_done;
    LeaseDone lease_done;
    CodeDone code_done;
  };
  struct Request {
    uint64_t operation = 0;
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t left = 0;
    uint64_t asked_ns = 0;
  };
  struct Transfer {
    uint64_t operation = 0;  // 0: its item has ended
    uint32_t item = 0;
    uint64_t bytes = 0;
    StagingOwner* owner = nullptr;
    uint64_t cookie = 0;
  };

  uint64_t start(Operation operation);
  void enqueue(uint64_t id, Operation& operation);
  enum class Pumped : uint8_t { asked, waits_for_staging };
  Pumped pump_first(std::deque<uint64_t>& queue);
  bool issue(uint64_t id);
  bool issue_find(uint64_t id, Operation& operation);
  bool issue_fetch(uint64_t id, Operation& operation);
  bool issue_offer(uint64_t id, Operation& operation);
  bool issue_small(uint64_t id, Operation& operation);
  bool post_item(uint64_t id, Operation& operation, uint32_t index);
  uint64_t add_request(uint64_t id, Operation& operation, uint32_t first, uint32_t count);
  void send(size_t bytes);

  Status take_found(uint64_t request, ConstBytes body);
  Status take_fetched(uint64_t request, ConstBytes body);
  Status take_want(uint64_t request, ConstBytes body);
  Status take_small(const wire::Head& head, ConstBytes body);
  Status take_failed(uint64_t request, ConstBytes body);

  void arrived(Operation& operation, uint32_t index, Code code, uint64_t bytes);
  void resolve(uint64_t id, Operation& operation, uint32_t index, Code code);
  void answered(uint64_t request, uint32_t items);
  void abandon(uint64_t id, Operation& operation, Code code);
  void finish(uint64_t id);
  static void tell(Operation& op);
  void finish_small(uint64_t id, Operation& operation, Code code);
  uint64_t request_of(const Operation& operation, uint32_t item);

  LinkHost& host_;
  PeerLink& link_;
  LinkStats& stats_;
  Slots<Operation> operations_;
  Slots<Request> requests_;
  copy::FlatTable<Transfer> transfers_;
  std::deque<uint64_t> queue_;    // operations with something to send, except fetches
  std::deque<uint64_t> fetches_;  // fetches with something to send
  bool fetch_next_ = false;       // the other queue was served last
  std::vector<Operation> finished_;
  std::vector<Transfer> quiet_;  // ended after their items
  std::vector<uint64_t> unwanted_;
  uint64_t next_tag_ = 1;
  uint64_t next_deadline_ = kNever;
  uint32_t limit_ = 0;  // requests at once; 0 before begin()
  Code ended_ = Code::ok;
};

}  // namespace kvbm::cluster
