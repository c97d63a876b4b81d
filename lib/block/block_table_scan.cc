// Views of the table for other threads while it works.
#include "block/block_table.h"

namespace kvbm::block {

SlotInfo BlockTable::info(SlotId slot) const noexcept {
  const SlotMeta& meta = meta_[slot];
  const SlotWord now = word(slot);
  SlotInfo info;
  info.slot = slot;
  info.identity = table_[slot].identity();
  info.state = now.state();
  info.withdrawn = now.withdrawn();
  info.flags = meta.flags.load(std::memory_order_relaxed);
  info.account = meta.account.load(std::memory_order_relaxed);
  info.references = now.references();
  info.children = now.children();
  info.pins = now.pins();
  info.uses = facts_[slot].uses.load(std::memory_order_relaxed);
  info.last_use = facts_[slot].last_use.load(std::memory_order_relaxed);
  info.payload_bytes = meta.bytes.load(std::memory_order_relaxed);
  info.generation = meta.generation.load(std::memory_order_relaxed);
  return info;
}

SlotId BlockTable::scan(SlotId first, std::vector<SlotInfo>& out, size_t limit) const {
  size_t found = 0;
  SlotId slot = first;
  for (; slot < slot_count_ && found < limit; ++slot) {
    if (word(slot).state() == SlotState::reset) continue;
    out.push_back(info(slot));
    ++found;
  }
  return slot < slot_count_ ? slot : slot_count_;
}

Counters BlockTable::counters() const {
  Counters all;
  for (const auto& pool : pools_) pool->add_to(all);
  return all;
}

size_t BlockTable::bytes() const {
  size_t total = sizeof *this + index_.bytes() + quotas_.bytes();
  for (const auto& pool : pools_) total += pool->bytes();
  return total + static_cast<size_t>(slot_count_) * (sizeof(Slot) + sizeof(SlotMeta) + sizeof(policy::Facts));
}

void BlockTable::note_size(uint32_t bytes) noexcept {
  uint64_t known = 0;
  if (!one_size_.compare_exchange_strong(known, bytes, std::memory_order_relaxed) && known != bytes) {
    one_size_.store(kSeveralSizes, std::memory_order_relaxed);
  }
}

uint64_t BlockTable::payload_bytes(std::span<const SlotId> slots) const noexcept {
  const uint64_t each = one_size_.load(std::memory_order_relaxed);
  uint64_t bytes = 0;
  for (const SlotId slot : slots) {
    if (slot != kNoSlot) bytes += each != kSeveralSizes ? each : payload_bytes(slot);
  }
  return bytes;
}

}  // namespace kvbm::block
