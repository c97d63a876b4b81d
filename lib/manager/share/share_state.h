// State of a manager in a shared tier set (share.h), for its operations, its figures and its metrics.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace kvbm::cluster {
class MappedPools;
}

namespace kvbm::manager {

enum class ShareRole : uint32_t { off = 0, owner = 1, client = 2 };

struct ShareState {
  // The owner's memory, if it is mapped here. Set once, before other threads see this object.
  std::shared_ptr<const cluster::MappedPools> pools;
  std::atomic<ShareRole> role{ShareRole::off};
  std::atomic<bool> connected{false};    // of a client: to the owner
  std::atomic<uint64_t> owner_pid{0};    // 0: no owner is known
  std::atomic<uint32_t> clients{0};      // of the owner
  std::atomic<uint64_t> takeovers{0};    // this process became the owner after another one
  std::atomic<uint64_t> owners_lost{0};  // links to an owner that ended
  std::atomic<uint64_t> not_kept{0};     // stored blocks that flushes did not find where they promise them
  std::atomic<uint64_t> silent_lookups{
      0};  // lookups that the owner did not answer in time, or that did not wait for it
};

}  // namespace kvbm::manager
