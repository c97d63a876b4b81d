// A record as an operation receives it: a block of the host, or one that was read from a tier below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"
#include "codec/record/opened_leaf.h"

namespace kvbm::manager {

class HostTier;

// Leaves of a record that arrived coded, for a receiver that decodes them.
struct CodedLanding {
  std::vector<std::byte> head;            // of the plain record
  std::vector<codec::OpenedLeaf> leaves;  // offsets are relative to the payload of the delivery
};

struct Delivery {
  Code code = Code::internal;
  TierIndex from = 0;     // tier that the record was read from; 0: the host; kOtherSize: the record was made here
  SlotId slot = kNoSlot;  // that it was read into; the reference goes along. kNoSlot: it lies elsewhere
  uint64_t location = 0;  // in the tier, for reject()
  uint64_t mark = 0;      // Invalidations::mark at the time of the request
  const std::byte* payload = nullptr;
  ConstBytes head;                            // of the plain record; not set if another process owns the record
  std::shared_ptr<const CodedLanding> coded;  // null: the payload is plain. Else the slot has no head yet
  // Object that keeps payload and head alive, unless the slot does. Must be released soon.
  std::shared_ptr<void> keep;
};

// Adds the head to a delivery that has a plain payload: in the slot, or beside the payload. `on_tiers`: flags of the
// tiers that have the record (on_tier_flag).
Code settle_head(HostTier& host, Delivery& one, ConstBytes head, uint8_t on_tiers);

}  // namespace kvbm::manager
