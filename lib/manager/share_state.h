// What a manager of a shared tier set is at the moment (share.h), for its operations, its figures and its metrics.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "manager/unflushed.h"

namespace kvbm::cluster {
class MappedPools;
}

namespace kvbm::manager {

enum class ShareRole : uint32_t { off = 0, owner = 1, client = 2 };

struct ShareState {
  // The owner's memory, where it is mapped here. Set before anybody else sees this, and never again.
  std::shared_ptr<const cluster::MappedPools> pools;
  std::atomic<ShareRole> role{ShareRole::off};
  std::atomic<bool> connected{false};       // a client: with the owner
  std::atomic<uint64_t> owner_pid{0};       // 0: there is none, as far as is known
  std::atomic<uint32_t> clients{0};         // of the owner
  std::atomic<uint64_t> takeovers{0};       // this process became the owner after another one
  std::atomic<uint64_t> owners_lost{0};     // links to an owner that ended
  Unflushed unflushed;                      // what was stored here
  std::atomic<uint64_t> not_kept{0};        // blocks of it that flushes did not find where they promise them
  std::atomic<uint64_t> silent_lookups{
      0};  // lookups that the owner did not answer in time, or that did not wait for it
};

}  // namespace kvbm::manager
