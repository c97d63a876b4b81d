// Inputs and outputs of a link to a peer: batches, limits, figures, and the environment that all links of one thread
// share.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/crypto/random.h"
#include "base/family/family_table.h"
#include "base/telemetry/log.h"
#include "base/thread/executor.h"
#include "cluster/admission/handshake.h"
#include "cluster/link/peer_port.h"
#include "cluster/link/record_source.h"
#include "cluster/same_host/host_facts.h"
#include "cluster/wire/wire.h"

namespace kvbm::cluster {

class PeerLink;

// Asks which records the peer has. One status per item: ok (found has the answer), deadline, owner_gone, ...
struct FindBatch {
  std::vector<Identity> ids;
  uint64_t deadline_ns = kNever;
  uint64_t lease_ns = 0;  // lease of found records, so that a later fetch finds them
  struct Lease {
    uint64_t id = 0;
    uint64_t until_ns = 0;  // by this node's clock, from the arrival of the grant less the time it was in transit
  };
  // Results: found[i], status[i] and leases[i] belong to item i.
  std::vector<wire::FoundItem> found;
  std::vector<Code> status;
  std::vector<Lease> leases;
  UniqueFunction<void(FindBatch&)> done;
};

// Callback for quarantined memory that no late transfer can touch any more.
class StagingOwner {
 public:
  virtual ~StagingOwner() = default;
  virtual void staging_quiet(uint64_t cookie) = 0;
};

// Fetches a record, or some leaves of it, into the caller's staging: [head | payload of those leaves].
struct FetchItem {
  Identity id;
  uint64_t location = 0;
  uint32_t first_leaf = 0;
  uint32_t leaves = 0;  // 0 = all from first_leaf on
  MutableBytes staging;
  uint64_t cookie = 0;
  // Results. ok: the head was checked and is that of the wanted record; the leaves are not checked yet.
  Code status = Code::ok;
  uint32_t head_bytes = 0;     // with no_room: the record's size
  uint64_t payload_bytes = 0;  // of the bytes that arrived; with no_room: the record's size
  uint64_t raw_bytes = 0;      // of the decoded payload
  bool coded = false;          // coded or sealed: it must be decoded
  bool sealed = false;
  bool quarantined = false;  // staging may still be written to until staging_quiet(cookie)
};
struct FetchBatch {
  std::vector<FetchItem> items;
  uint64_t deadline_ns = kNever;
  wire::Coding coding;            // requested coding
  StagingOwner* owner = nullptr;  // may be null if deadline_ns is kNever and nothing is cancelled
  UniqueFunction<void(FetchBatch&)> done;
};

// A record that a node offers to another.
struct Offered {
  Identity id;
  uint16_t uses = 0;
  uint8_t priority = 0;
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;
  uint64_t location = 0;
};

// Records that this node is about to drop, offered to a peer. They are held until the peer has released the lease, or
// lease_ns have passed. wanted: indexes that the peer is going to fetch.
struct OfferBatch {
  std::vector<Offered> items;  // at most kMaxOfferItems, of at most kMaxFamiliesPerMessage families
  uint64_t deadline_ns = kNever;
  uint64_t lease_ns = 0;
  // Results.
  uint64_t lease = 0;  // holds the records; 0: none, and the offer has failed
  Code status = Code::ok;
  std::vector<uint32_t> wanted;
  UniqueFunction<void(OfferBatch&)> done;
};

struct LinkLimits {
  uint64_t handshake_ns = 2'000'000'000;
  uint64_t quiet_ns = 500'000'000;        // silence after which a sign is requested
  uint64_t dead_ns = 1'500'000'000;       // silence after which the peer counts as gone (2 s are promised)
  uint32_t requests = 64;                 // sent to the peer at once, and served to it at once
  uint64_t staging_bytes = 64U << 20;     // posted at once
  uint64_t quarantine_bytes = 64U << 20;  // beyond this, fetches are refused until some is quiet
  uint32_t serving_items = 1024;          // records open for the peer at once
  uint32_t leases = 256;
  uint32_t lease_records = 65536;
  uint64_t lease_ns = 30'000'000'000;  // longest lease
  uint32_t lease_renewals = 10;        // a lease ends after so many times lease_ns, however often it was renewed
  uint32_t new_families = 4096;        // limit of families known only from offers of one connection, at a time
  bool own_families = false;           // families in offers count as this process's own
  uint32_t new_epochs = 64;            // rows that one connection may add for namespaces not used here
  uint32_t epochs_waiting = 64;        // queued invalidations while others are being written; beyond: again
  uint64_t outbox_bytes = 8U << 20;    // a peer with more unread output is disconnected
};

struct LinkStats {
  uint64_t messages_in = 0;
  uint64_t fetched_bytes = 0, served_bytes = 0;
  uint64_t wrong_records = 0, damaged = 0;  // arrivals that were refused
  uint64_t leases_expired = 0;
  uint64_t leases_short = 0;  // records that were not held: leases had their share
  uint64_t pings = 0, violations = 0;
  uint64_t epochs_refused = 0;  // invalidations that were implausible, or for which the table was full
  uint64_t epochs_put_off = 0;  // invalidations answered with again
  uint64_t posted_bytes = 0, quarantined_bytes = 0;               // now
  uint64_t open_records = 0, leased_records = 0, unfinished = 0;  // now
};

// Callbacks on the links' thread, outside any call into the link; they may call it.
class LinkListener {
 public:
  virtual ~LinkListener() = default;
  // Reports that the peer has proved its identity.
  virtual void link_ready(PeerLink& link) = 0;
  // Reports that nothing more arrives from this link; its staging is quiet, its leases are released.
  virtual void link_ended(PeerLink& link, const Status& why) = 0;
  // Reports records that the peer offers under a lease; the callee adds the indexes that it will fetch. With none the
  // lease ends.
  virtual void link_offered(PeerLink&, std::span<const Offered>, uint64_t /*lease*/, std::vector<uint32_t>& /*want*/) {}
  // Passes on a message of cluster/session.
  virtual void link_session(PeerLink&, ConstBytes /*bytes*/) {}
  // Reports the peer's machine.
  virtual void link_host(PeerLink&, const HostFacts&) {}
  // Reports the end of the post_session() or push_session() with that name; its memory is the session's again.
  virtual void link_session_moved(PeerLink&, uint64_t /*name*/, Code /*code*/, uint64_t /*bytes*/) {}
  // Reports that a send_session() that returned again can be retried.
  virtual void link_session_writable(PeerLink&) {}
};

// A limit `most` shared by all links of one thread: links that hold some get equal parts.
class HeldByPeers {
 public:
  // Returns how many more a link that holds `own` may take.
  [[nodiscard]] uint64_t room(uint64_t most, uint64_t own) const noexcept {
    const uint64_t part = std::max<uint64_t>(most / (holders_ + (own == 0 ? 1 : 0)), 1);
    return std::min(most - std::min(most, held_), part - std::min(part, own));
  }
  void take(uint64_t own, uint64_t more) noexcept {
    holders_ += own == 0 && more != 0 ? 1 : 0;
    held_ += more;
  }
  // `own`: the rest that it holds.
  void give_back(uint64_t own, uint64_t less) noexcept {
    holders_ -= own == 0 && less != 0 ? 1 : 0;
    held_ -= less;
  }
  [[nodiscard]] uint64_t held() const noexcept { return held_; }

 private:
  uint64_t held_ = 0;
  uint64_t holders_ = 0;
};

// State shared by all links of one thread; outlives them.
struct LinkHost {
  Executor& executor;  // runs tasks on the links' thread
  Random& random;
  FamilyTable& families;
  RecordSource& source;
  LinkListener& listener;
  NodeFacts self;
  std::optional<SharedKey> key;
  LinkLimits limits = {};
  const Log* log = nullptr;          // gets refused unauthenticated peers
  std::string_view log_as = "node";  // component of those lines

  // Working memory of the link that is being called.
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

// Returns the index of `family` in `families`, adding it if there is space; else kMaxFamiliesPerMessage.
uint32_t place_family(std::vector<Family>& families, const Family& family);

}  // namespace kvbm::cluster
