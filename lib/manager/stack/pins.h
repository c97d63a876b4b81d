// Pins: blocks that a caller keeps in the host, until it ends them or their deadline passes. Thread: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "base/clock.h"
#include "block/pin_table.h"
#include "manager/host/host_tier.h"

namespace kvbm::manager {

class Pins {
 public:
  // The host is open.
  explicit Pins(HostTier& host) : host_(host), table_(host.table()) {}

  // Pins the leading blocks that are in the host; `count` is their number. `takes_lossy`: as
  // NamespaceOptions::allow_lossy.
  Code pin(FamilyId family, std::span<const Key> keys, uint64_t owner, uint64_t deadline_ns, block::PinId& id,
           size_t& count, bool takes_lossy = true);
  Code unpin(block::PinId id);
  size_t unpin_owner(uint64_t owner);
  [[nodiscard]] size_t size() const { return table_.size(); }

 private:
  void arm(uint64_t deadline_ns);
  void expire();

  HostTier& host_;
  block::PinTable table_;
  std::atomic<uint64_t> armed_ns_{kNever};  // the timer that is set
};

}  // namespace kvbm::manager
