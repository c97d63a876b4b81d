#include "manager/stack/delivery.h"

#include <cstring>
#include <utility>

#include "codec/record/record.h"
#include "manager/common/slot_flags.h"
#include "manager/host/host_tier.h"

namespace kvbm::manager {

namespace {

// Head of a record beside the host, and what keeps its payload. No other operation sees them.
struct BesideHost {
  std::vector<std::byte> head;
  std::shared_ptr<void> payload;
};

}  // namespace

Code settle_head(HostTier& host, Delivery& one, ConstBytes head) {
  const auto view = codec::HeadView::parse(head);
  if (!view.ok()) return Code::damaged;
  const SlotId slot = one.slot;
  if (slot != kNoSlot && head.size() > host.arena().head(slot).size()) return Code::mismatch;
  if (codec::is_coded(view.value())) return Code::mismatch;  // the tier that delivered it should have decoded it
  if ((view.value().header().flags & codec::kLossy) != 0) host.note_lossy();
  if (slot == kNoSlot) {
    auto beside = std::make_shared<BesideHost>();
    beside->head.assign(head.begin(), head.end());
    beside->payload = std::move(one.keep);
    one.head = beside->head;
    one.keep = std::move(beside);
    return Code::ok;
  }
  if ((view.value().header().flags & codec::kContentKey) != 0) host.note_positions();
  const MutableBytes room = host.arena().head(slot);
  host.arena().clear_head(slot);
  std::memcpy(room.data(), head.data(), head.size());
  one.head = room.first(head.size());
  host.table().set_payload_bytes(slot, static_cast<uint32_t>(view.value().header().stored_bytes));
  const Code completed = host.table().complete({&slot, 1});
  if (completed != Code::ok) return completed;
  const bool below = one.from != kOtherSize;
  host.table().set_flags(slot, static_cast<uint8_t>(below ? kHasHead | on_tier_flag(one.from) : kHasHead));
  return Code::ok;
}

}  // namespace kvbm::manager
