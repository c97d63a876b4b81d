#include "block/blocks.h"

namespace kvbm::block {

RegisteredBlock WeakBlock::upgrade() const noexcept {
  if (!table_->acquire_weak(slot_, generation_)) return {};
  return RegisteredBlock(OwnedSlot(*table_, slot_));
}

RegisteredBlock RegisteredBlock::clone() const noexcept {
  if (!slot_) return {};
  const SlotId slot = slot_.slot();
  slot_.table().retain({&slot, 1});
  return RegisteredBlock(OwnedSlot(slot_.table(), slot));
}

auto PartialBlock::complete() && -> Transition<CompleteBlock, PartialBlock> {
  const SlotId slot = slot_.slot();
  if (slot == kNoSlot) return {Code::wrong_state, std::move(*this)};
  const Code code = slot_.table().complete({&slot, 1});
  if (code != Code::ok) return {code, std::move(*this)};
  return Transition<CompleteBlock, PartialBlock>(CompleteBlock(std::move(slot_)));
}

auto CompleteBlock::publish(const Identity& name, const RegisteredBlock* parent, DuplicateMode duplicates,
                            uint32_t tick) && -> Transition<RegisteredBlock, CompleteBlock> {
  if (slot_.slot() == kNoSlot) return {Code::wrong_state, std::move(*this)};
  BlockTable& table = slot_.table();
  SlotId slot = slot_.slot();
  Code code = Code::ok;
  Publication what;
  what.family = name.family;
  what.keys = {&name.key, 1};
  what.lineage = Lineage::chain;
  what.first_parent = parent != nullptr ? parent->slot() : kNoSlot;
  what.duplicates = duplicates;
  what.tick = tick;
  const Code all = table.publish({&slot, 1}, what, {&code, 1});
  if (all != Code::ok) return {code, std::move(*this)};
  // The reference belongs to `slot` now: the new block, or the existing one.
  (void)slot_.detach();
  Transition<RegisteredBlock, CompleteBlock> done(RegisteredBlock(OwnedSlot(table, slot)));
  done.set_code(code);
  return done;
}

Result<std::vector<PartialBlock>> allocate(BlockTable& table, size_t n, AccountId account,
                                           std::vector<Evicted>* evicted, uint32_t tick) {
  std::vector<SlotId> slots(n);
  std::vector<PartialBlock> blocks;
  blocks.reserve(n);
  const Code code = table.allocate(account, slots, evicted, tick);
  if (code != Code::ok) return Status(code, "there is no room for the blocks");
  for (const SlotId slot : slots) blocks.emplace_back(OwnedSlot(table, slot));
  return blocks;
}

RegisteredBlocks RegisteredBlocks::match(BlockTable& table, FamilyId family, std::span<const Key> keys, uint32_t tick) {
  std::vector<SlotId> slots(keys.size());
  slots.resize(table.acquire_prefix(family, keys, slots, tick));
  return {table, std::move(slots)};
}

}  // namespace kvbm::block
