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
  // Where the record is. It decides how the record is opened, what its receiver releases, and what is to blame for
  // damage.
  enum class Place : uint8_t {
    match,    // in a slot that the match holds
    slot,     // in a slot of the receiver's own
    beside,   // in memory beside the host, or lent by a tier
    foreign,  // in memory that another process owns and may write at any moment
    device,   // in memory of the receiver's device
  };

  Code code = Code::internal;
  Place place = Place::match;
  TierIndex from = 0;      // tier that the record was read from; 0: the host; kOtherSize: the record was made here
  SlotId slot = kNoSlot;   // with Place::slot the reference goes along
  uint64_t location = 0;   // in the tier, for reject()
  uint64_t mark = 0;       // Invalidations::mark at the time of the request
  const std::byte* payload = nullptr;
  ConstBytes head;         // of the plain record. Not set for blocks of a match and foreign ones
  std::shared_ptr<const CodedLanding> coded;  // null: the payload is plain. Else the slot has no head yet
  // Object that keeps payload and head alive, unless the slot does. Must be released soon.
  std::shared_ptr<void> keep;

  [[nodiscard]] bool owns_slot() const noexcept { return place == Place::slot; }
  // Adds the slot of a record that is not used, if it has one, to those that the receiver releases.
  void leave(std::vector<SlotId>& slots) const {
    if (owns_slot()) slots.push_back(slot);
  }
  // Returns true for a record that was read from below into memory of the host or beside it.
  [[nodiscard]] bool came_up() const noexcept { return place == Place::slot || place == Place::beside; }
};

// Adds the head to a delivery that has a plain payload: in the slot, or beside the payload.
Code settle_head(HostTier& host, Delivery& one, ConstBytes head);

}  // namespace kvbm::manager
