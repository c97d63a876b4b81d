// The serving half of a link: answers finds, opens records and pushes them, keeps the peer's leases. Internal to
// peer_link. A record being pushed stays open until the push has ended, whatever leases and deadlines say. Bounds:
// requests, open records, leases and leased records of one peer (LinkLimits). Thread: the link's.
#pragma once

#include <deque>
#include <map>

#include "cluster/link/link_types.h"
#include "cluster/link/slots.h"
#include "copy/flat_table.h"

namespace kvbm::cluster {

class LinkService {
 public:
  LinkService(LinkHost& host, PeerLink& link, LinkStats& stats) : host_(host), link_(link), stats_(stats) {}

  // Records that are still being opened for this link are dropped on arrival.
  ~LinkService();
  LinkService(const LinkService&) = delete;
  LinkService& operator=(const LinkService&) = delete;

  // Takes a request of the peer. Not ok: it broke the protocol.
  Status take(const wire::Head& head, ConstBytes body);
  void record_opened(uint64_t serving, uint32_t index, const OpenedRecord& record);
  void epochs_taken(const std::vector<EpochWord>& words, std::vector<EpochWord>& tell_back);
  void pushed(uint64_t token, Code code);
  // Opens records as far as limits allow, and reports failed items to the peer.
  void pump();
  void expire(uint64_t now_ns);
  [[nodiscard]] uint64_t next_deadline() const noexcept { return next_deadline_; }
  // Leases end now; records end with their pushes.
  void end();

  // Leases these records; 0: too many are leased, or one of them has gone.
  uint64_t grant(std::span<const Identity> ids, uint64_t lease_ns);
  void release(uint64_t lease);
  [[nodiscard]] bool holds(uint64_t lease) const noexcept { return leases_.count(lease) != 0; }
  // Returns how many records a lease could hold now.
  [[nodiscard]] size_t lease_room() const noexcept {
    if (leases_.size() >= host_.limits.leases || stats_.leased_records >= host_.limits.lease_records) return 0;
    return std::min<uint64_t>(host_.limits.lease_records - stats_.leased_records,
                              host_.leased.room(host_.source.room().leased, stats_.leased_records));
  }
  // Decodes a peer's offer, with its families as ids.
  Status take_offer(ConstBytes body, std::vector<Offered>& out, wire::Offer& head);

 private:
  struct ServedItem {
    Identity id;
    bool known = false;
    uint32_t first_leaf = 0;
    uint32_t leaves = 0;
    uint64_t location = 0;
    uint64_t tag = 0;
    uint64_t room = 0;
    uint64_t token = 0;  // of its push
  };
  struct Serving {
    uint64_t request = 0;
    uint64_t deadline_ns = kNever;
    wire::Coding coding;
    uint32_t next = 0;
    uint32_t open = 0;
    bool cancelled = false;
    std::vector<ServedItem> items;
    std::vector<wire::FetchedItem> failed;
  };
  struct Push {
    uint64_t serving = 0;
    uint32_t index = 0;
    uint64_t pin = 0;
  };
  // One epoch word for several requests of the peer.
  struct EpochAsked {
    EpochWord word;
    std::vector<uint64_t> requests;
  };
  struct Lease {
    uint64_t until_ns = 0;
    uint64_t last_ns = 0;  // no renewal goes beyond it
    std::vector<Identity> ids;
  };

  Status take_find(ConstBytes body);
  Status take_fetch(ConstBytes body);
  Status take_cancel(ConstBytes body);
  Status take_release(ConstBytes body);
  Status take_renew(ConstBytes body);
  Status take_invalidate(ConstBytes body);
  void answer_invalidate(uint64_t request, Code code);
  void start_epochs();
  bool identity_of(const wire::Name& name, const std::vector<Family>& families, Identity& out) const;
  void start(uint64_t id, uint32_t index);
  void fail(Serving& serving, uint32_t index, Code code, uint32_t head_bytes = 0, uint64_t payload_bytes = 0);
  void close_item(uint64_t id);
  void flush(Serving& serving);
  // Limits and counts the records that are open for peers.
  bool may_open() const noexcept;
  void opened_one() noexcept;
  void closed_one() noexcept;
  uint64_t add_lease(std::vector<Identity> ids, uint64_t lease_ns);
  void drop(std::map<uint64_t, Lease>::iterator lease);

  LinkHost& host_;
  PeerLink& link_;
  LinkStats& stats_;
  Slots<Serving> serving_;
  std::deque<uint64_t> queue_;
  copy::FlatTable<Push> pushes_;
  std::map<uint64_t, Lease> leases_;
  uint64_t next_lease_ = 1;
  uint64_t next_deadline_ = kNever;
  const FamilyTable::PeerCount new_families_ = std::make_shared<std::atomic<uint32_t>>(0);
  std::vector<EpochAsked> epochs_waiting_;
  std::vector<EpochAsked> epochs_at_work_;  // one batch at a time
  size_t epoch_requests_waiting_ = 0;
  uint32_t new_epochs_ = 0;
  bool told_of_epochs_ = false;  // logged once a link
  bool ended_ = false;
};

}  // namespace kvbm::cluster
