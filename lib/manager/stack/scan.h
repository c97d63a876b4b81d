// Paged walk over all blocks, tier by tier, without stopping any work.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace kvbm::manager {

class TierStack;

struct ScanEntry {
  Identity id;
  TierIndex tier = 0;
  uint64_t bytes = 0;
  uint32_t uses = 0;
  uint32_t holds = 0;
  uint32_t pins = 0;
  uint32_t age = 0;
};

// Fills a page from `cursor` (0 = start; 0 again when the walk is over) and returns its rows.
size_t scan(TierStack& stack, uint64_t& cursor, std::span<ScanEntry> out);

}  // namespace kvbm::manager
