// The host tiers of other nodes of this machine, mapped into this process: who reads a record in place asks here.
//
// A pool is in the table from its handing over until its node's process has ended or the node has closed the local
// connection; who reads out of one keeps it mapped, whatever becomes of the table. Whether a record is (still) where it
// was said to be is proven by the record (copy/local/fetch.h). Thread: any. Lock: mutex_, a leaf. Budget: one look-up
// by id among the nodes of this machine.
#pragma once

#include <atomic>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "cluster/node.h"
#include "copy/local/fetch.h"
#include "copy/local/remote_pool.h"

namespace kvbm::cluster {

// The owner's location of a record in its host tier, as it is said in `found`; 0 says nothing.
constexpr uint64_t location_of_slot(SlotId slot) noexcept { return uint64_t{slot} + 1; }

class MappedPools {
 public:
  struct Pool {
    std::shared_ptr<const copy::local::RemotePool> memory;
    NodeId node;
    uint64_t incarnation = 0;
    // Of records read here: figures alone, nothing is published with them.
    mutable std::atomic<uint64_t> records{0}, bytes{0}, stale{0};

    // Empty where `location` names no slot.
    [[nodiscard]] copy::local::RecordPlace place(uint64_t location) const noexcept;
  };

  // Instead of what that node handed over before.
  void set(const NodeId& node, uint64_t incarnation, std::shared_ptr<const copy::local::RemotePool> memory);
  // False where another one has taken its place.
  bool drop(const NodeId& node, uint64_t pool_id);
  [[nodiscard]] std::shared_ptr<const Pool> of(const NodeId& node) const;
  // Read out of all of them so far, also of those that are not in use any more.
  [[nodiscard]] uint64_t bytes() const;
  [[nodiscard]] bool empty() const;

 private:
  mutable Mutex mutex_;
  std::map<NodeId, std::shared_ptr<const Pool>> pools_ KVBM_GUARDED_BY(mutex_);
  uint64_t former_bytes_ KVBM_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvbm::cluster
