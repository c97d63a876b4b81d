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

Code settle_beside(Delivery& one, ConstBytes head) {
  auto beside = std::make_shared<BesideHost>();
  beside->head.assign(head.begin(), head.end());
  beside->payload = std::move(one.keep);
  one.head = beside->head;
  one.keep = std::move(beside);
  return Code::ok;
}

Code settle_in_slot(HostTier& host, Delivery& one, ConstBytes head, const codec::Header& header, uint8_t on_tiers) {
  const SlotId slot = one.slot;
  const MutableBytes room = host.arena().head(slot);
  if (head.size() > room.size()) return Code::mismatch;
  if ((header.flags & codec::kContentKey) != 0) host.note_positions();
  host.arena().clear_head(slot);
  std::memcpy(room.data(), head.data(), head.size());
  one.head = room.first(head.size());
  host.table().set_payload_bytes(slot, static_cast<uint32_t>(header.stored_bytes));
  const Code completed = host.table().complete({&slot, 1});
  if (completed == Code::ok) host.table().set_flags(slot, static_cast<uint8_t>(kHasHead | on_tiers));
  return completed;
}

}  // namespace

Code settle_head(HostTier& host, Delivery& one, ConstBytes head, uint8_t on_tiers) {
  const auto view = codec::HeadView::parse(head);
  if (!view.ok()) return Code::damaged;
  if (codec::is_coded(view.value())) return Code::mismatch;  // the tier that delivered it should have decoded it
  const codec::Header& header = view.value().header();
  if ((header.flags & codec::kLossy) != 0) host.note_lossy();
  return one.slot == kNoSlot ? settle_beside(one, head) : settle_in_slot(host, one, head, header, on_tiers);
}

}  // namespace kvbm::manager
