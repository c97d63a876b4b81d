// What goes into and comes out of a link to a peer: batches, limits, figures, and the environment that all links of one
// thread share.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/executor.h"
#include "base/family_table.h"
#include "base/log.h"
#include "base/random.h"
#include "cluster/handshake.h"
#include "cluster/host_facts.h"
#include "cluster/peer_port.h"
#include "cluster/record_source.h"
#include "cluster/wire.h"

namespace kvbm::cluster {

class PeerLink;

// Which of these does the peer have? One status per item: ok (found says whether), deadline, owner_gone, ...
struct FindBatch {
  std::vector<Identity> ids;
  uint64_t deadline_ns = kNever;
  uint64_t lease_ns = 0;  // hold what is found for so long, so that a fetch will find it
  struct Lease {
    uint64_t id = 0;
    uint64_t until_ns = 0;  // by this node's clock, from the arrival of the grant less the time it was on its way
  };
  // out
  std::vector<wire::FoundItem> found;
  std::vector<Code> status;
  std::vector<Lease> leases;
  UniqueFunction<void(FindBatch&)> done;
};

// Told when memory that a late transfer could have touched is quiet.
class StagingOwner {
 public:
  virtual ~StagingOwner() = default;
  virtual void staging_quiet(uint64_t cookie) = 0;
};

// A record, or some leaves of it, into the caller's staging: [head | payload of those leaves].
struct FetchItem {
  Identity id;
  uint64_t location = 0;
  uint32_t first_leaf = 0;
  uint32_t leaves = 0;  // 0 = all from first_leaf on
  MutableBytes staging;
  uint64_t cookie = 0;
  // out. ok: the head is checked and is this record's, the leaves are not.
  Code status = Code::ok;
  uint32_t head_bytes = 0;     // with no_room: what the record has
  uint64_t payload_bytes = 0;  // of what arrived; with no_room: what the record has
  uint64_t raw_bytes = 0;      // of its payload, decoded
  bool coded = false;          // or sealed: it must be decoded
  bool sealed = false;
  bool quarantined = false;    // staging may still be written to until staging_quiet(cookie)
};
struct FetchBatch {
  std::vector<FetchItem> items;
  uint64_t deadline_ns = kNever;
  wire::Coding coding;            // as it is to come
  StagingOwner* owner = nullptr;  // may be null if deadline_ns is kNever and nothing is cancelled
  UniqueFunction<void(FetchBatch&)> done;
};

// Records that this node is about to drop, for a peer that wants them. They are held until it released the lease, or
// lease_ns have passed. wanted: indexes that the peer is going to fetch.
struct OfferBatch {
  struct Item {
    Identity id;
    uint16_t uses = 0;
    uint8_t priority = 0;
    uint32_t head_bytes = 0;
    uint64_t payload_bytes = 0;
    uint64_t location = 0;
  };
  std::vector<Item> items;  // kMaxOfferItems at most, of kMaxFamiliesPerMessage families at most
  uint64_t deadline_ns = kNever;
  uint64_t lease_ns = 0;
  // out
  uint64_t lease = 0;  // that they are held by; 0: none, and the offer has failed
  Code status = Code::ok;
  std::vector<uint32_t> wanted;
  UniqueFunction<void(OfferBatch&)> done;
};

struct LinkLimits {
  uint64_t handshake_ns = 2'000'000'000;
  uint64_t quiet_ns = 500'000'000;        // without a sign of the peer: ask for one
  uint64_t dead_ns = 1'500'000'000;       // without a sign of the peer: it is gone (2 s are promised)
  uint32_t requests = 64;                 // asked of the peer at once, served to it at once
  uint64_t staging_bytes = 64U << 20;     // posted at once
  uint64_t quarantine_bytes = 64U << 20;  // beyond: fetches are refused until it is quiet
  uint32_t serving_items = 1024;          // records open for the peer at once
  uint32_t leases = 256;
  uint32_t lease_records = 65536;
  uint64_t lease_ns = 30'000'000'000;  // the longest that is granted
  uint32_t lease_renewals = 10;        // a lease ends after so many times lease_ns, however often it was renewed
  uint32_t new_families = 4096;        // that offers of one connection made known and nothing else has named, at a time
  bool own_families = false;           // what offers name counts as this process's own
  uint32_t new_epochs = 64;            // of namespaces that nobody uses here: rows that one connection may add
  uint32_t epochs_waiting = 64;        // invalidations that wait while others are written down; beyond: again
  uint64_t outbox_bytes = 8U << 20;    // a peer that lets more wait is cut off
};

struct LinkStats {
  uint64_t messages_in = 0, messages_out = 0;
  uint64_t finds = 0, found = 0;  // items asked for, answered with present
  uint64_t fetches = 0, fetched = 0, fetched_bytes = 0;
  uint64_t wrong_records = 0, damaged = 0;  // arrivals that were refused
  uint64_t expired = 0, cancelled = 0;      // operations
  uint64_t served = 0, served_bytes = 0, serve_misses = 0, serve_expired = 0;
  uint64_t leases_granted = 0, leases_expired = 0;
  uint64_t leases_short = 0;  // records that were not held: leases had their share
  uint64_t pings = 0, violations = 0;
  uint64_t epochs_refused = 0;  // invalidations that were not plausible, or had no room
  uint64_t epochs_put_off = 0;  // that were answered with again
  uint64_t posted_bytes = 0, quarantined_bytes = 0;               // now
  uint64_t open_records = 0, leased_records = 0, unfinished = 0;  // now
};

struct Offered {
  Identity id;
  wire::OfferItem item;
};

// Called on the links' thread, outside any call into the link; may call it.
class LinkListener {
 public:
  virtual ~LinkListener() = default;
  // The peer is who it says it is.
  virtual void link_ready(PeerLink& link) = 0;
  // Nothing comes of this link any more; its staging is quiet, its leases are released.
  virtual void link_ended(PeerLink& link, const Status& why) = 0;
  // The peer offers records under a lease; add the indexes that will be fetched. With none added the lease is over.
  virtual void link_offered(PeerLink&, std::span<const Offered>, uint64_t /*lease*/, std::vector<uint32_t>& /*want*/) {}
  // A message of cluster/session.
  virtual void link_session(PeerLink&, ConstBytes /*bytes*/) {}
  // The peer says which machine it runs on.
  virtual void link_host(PeerLink&, const HostFacts&) {}
  // post_session() or push_session() of that name has ended; its memory is the session's again.
  virtual void link_session_moved(PeerLink&, uint64_t /*name*/, Code /*code*/, uint64_t /*bytes*/) {}
  // send_session() that said again can be tried again.
  virtual void link_session_writable(PeerLink&) {}
};

// What all links of one thread hold together of something that has `most`: those that hold some have equal parts.
class HeldByPeers {
 public:
  // How many more a link that holds `own` may hold.
  [[nodiscard]] uint64_t room(uint64_t most, uint64_t own) const noexcept {
    const uint64_t part = std::max<uint64_t>(most / (holders_ + (own == 0 ? 1 : 0)), 1);
    return std::min(most - std::min(most, held_), part - std::min(part, own));
  }
  void take(uint64_t own, uint64_t more) noexcept {
    holders_ += own == 0 && more != 0 ? 1 : 0;
    held_ += more;
  }
  // `own`: what is left.
  void give_back(uint64_t own, uint64_t less) noexcept {
    holders_ -= own == 0 && less != 0 ? 1 : 0;
    held_ -= less;
  }
  [[nodiscard]] uint64_t held() const noexcept { return held_; }

 private:
  uint64_t held_ = 0;
  uint64_t holders_ = 0;
};

// What all links of one thread share; outlives them.
struct LinkHost {
  Executor& executor;  // runs tasks on the links' thread
  Random& random;
  FamilyTable& families;
  RecordSource& source;
  LinkListener& listener;
  NodeFacts self;
  std::optional<SharedKey> key;
  LinkLimits limits = {};
  const Log* log = nullptr;           // hears of strangers that were refused
  std::string_view log_as = "node";  // component of those lines

  // Working memory of whichever link is being called.
  struct Scratch {
    std::vector<std::byte> out = std::vector<std::byte>(wire::kMaxMessage);
    wire::Find find;
    wire::Found found;
    wire::Fetch fetch;
    wire::Fetched fetched;
    wire::Offer offer;
    wire::Want want;
    wire::Release release;
    std::vector<Identity> ids;
  };
  Scratch scratch = {};
  HeldByPeers leased = {};  // records
  HeldByPeers open = {};
};

// What both halves of a link need of its middle.
class LinkOutlet {
 public:
  virtual ~LinkOutlet() = default;
  // Where the body of the next message is written; commit() seals and sends it.
  virtual MutableBytes body() noexcept = 0;
  virtual void commit(size_t bytes) = 0;
  // Nothing waits to be sent.
  [[nodiscard]] virtual bool clear() const noexcept = 0;
  [[nodiscard]] virtual PeerPort& port() noexcept = 0;
  [[nodiscard]] virtual std::weak_ptr<PeerLink> handle() noexcept = 0;
  // Who is at the other end.
  [[nodiscard]] virtual const NodeId& peer_node() const noexcept = 0;
};

// Index of `family` in `families`, added if there is room; kMaxFamiliesPerMessage if there is none.
uint32_t place_family(std::vector<Family>& families, const Family& family);

}  // namespace kvbm::cluster
