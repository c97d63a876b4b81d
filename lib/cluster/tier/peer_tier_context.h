// Context shared by the parts of the tier of other nodes: its options and surroundings, the known places of records,
// and the number of calls in progress.
//
// Thread: any. Invariant: each enter() that was true has one leave(). The callback of
// shutdown() runs once, on the core's executor, when no call is in progress any more.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "base/family/family_table.h"
#include "base/thread/executor.h"
#include "base/thread/open_calls.h"
#include "cluster/coding/link_coder.h"
#include "cluster/link/peer_link.h"
#include "cluster/same_host/mapped_pools.h"
#include "cluster/tier/peer_places.h"
#include "cluster/tier/peers.h"

namespace kvbm::cluster {

struct PeerTierOptions {
  uint64_t staging_bytes = 256ULL << 20;  // in use and in quarantine
  uint64_t location_bytes = 16ULL << 20;  // memory for the places of records
  uint64_t call_ns = 5'000'000'000;    // limit of one request's wait for a node; a silent node is disconnected sooner
  uint64_t lease_ns = 10'000'000'000;  // how long offered records are held
  uint32_t replicas = 1;               // number of homes that a record is offered to
  std::shared_ptr<const MappedPools> pools;  // of nodes of this machine; may be null
  std::shared_ptr<LinkCoder> coder;          // null: records are sent and accepted plain
};

// Records that were offered to nodes. May be read at any time.
struct OfferCounts {
  std::atomic<uint64_t> refused{0};    // counted for each node that was full, was gone, or did not answer
  std::atomic<uint64_t> elsewhere{0};  // accepted by a node that was asked after such a refusal
};

class PeerTierContext {
 public:
  PeerTierContext(const PeerTierOptions& what, Executor& core, FamilyTable& known, Peers& nodes)
      : options(what), executor(core), families(known), mesh(nodes), places(what.location_bytes, core.clock()) {}

  // Counts a call that begins; false after shutdown.
  bool enter() noexcept { return calls_.enter(); }

  void leave() {
    if (calls_.leave()) finish();
  }

  void shutdown(UniqueFunction<void()> done) {
    closed_ = std::move(done);
    if (calls_.close()) finish();
  }

  // Returns when a request to a node that begins now is given up, whatever its caller's deadline.
  [[nodiscard]] uint64_t latest_ns() const noexcept { return mesh.executor().clock().now_ns() + options.call_ns; }

  const PeerTierOptions options;
  Executor& executor;
  FamilyTable& families;
  Peers& mesh;  // used on its own thread only, except executor()
  PeerPlaces places;
  OfferCounts offers;

 private:
  void finish() {
    UniqueFunction<void()> done = std::move(closed_);
    if (done) executor.post(std::move(done));
  }

  OpenCalls calls_;
  UniqueFunction<void()> closed_;  // set before calls_ is closed, taken by the thread that finds none inside
};

}  // namespace kvbm::cluster
