#include "manager/stack/managed.h"

#include <vector>

#include "base/thread/memory_wait.h"
#include "manager/host/duplicate_resolver.h"
#include "manager/host/host_record.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

Key parent_of(const ManagedBlocks& blocks, size_t i) noexcept {
  if (!blocks.chained) return {};
  if (i != 0) return blocks.keys[i - 1];
  return blocks.parent != nullptr ? *blocks.parent : Key{};
}

Code make_managed_head(HostTier& host, const ManagedBlocks& blocks, size_t i, SlotId slot) {
  HeadFacts facts;
  facts.family = blocks.family;
  facts.key = blocks.keys[i];
  facts.parent = parent_of(blocks, i);
  if (blocks.positions.empty()) return make_head(host, slot, facts, {});
  facts.flags = codec::kContentKey;
  std::vector<std::byte> attributes;
  const auto value = codec::encode_position(blocks.positions[i]);
  const Status added = codec::append_attribute(attributes, codec::Attribute::position, value);
  return added.ok() ? make_head(host, slot, facts, attributes) : added.code();
}

// Records the blocks for a flush of a shared tier set.
void note_stored(Unflushed& unflushed, const ManagedBlocks& blocks, std::span<const Code> codes) {
  if (!unflushed.wanted()) return;
  std::vector<Identity> ids;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (codes[i] == Code::ok || codes[i] == Code::exists) ids.push_back({blocks.keys[i], blocks.family});
  }
  unflushed.stored(ids);
}

}  // namespace

Code publish_managed(TierStack& stack, const ManagedBlocks& blocks, std::span<SlotId> slots, std::span<Code> codes) {
  HostTier& host = stack.host();
  const MemoryWait no_error_path;  // the call has consumed its holds, so it cannot fail here
  const size_t n = slots.size();
  // The hash made here defines the block's content: a later change of any byte is detected.
  const size_t n_heads = host.options().hash_managed ? n : blocks.positions.size();
  Code headed = Code::ok;
  for (size_t i = 0; i < n_heads && headed == Code::ok; ++i) {
    headed = make_managed_head(host, blocks, i, slots[i]);
  }
  Code all = headed;
  if (headed == Code::ok) {
    block::Publication what;
    what.family = blocks.family;
    what.keys = blocks.keys;
    what.lineage = blocks.chained ? block::Lineage::chain : block::Lineage::none;
    what.duplicates = blocks.duplicates;
    what.priority = blocks.priority;
    what.tick = host.tick();
    DuplicateResolver resolver(host, blocks.takes_lossy, blocks.positions);
    what.precedence = &resolver;
    const bool after_parent = blocks.chained && blocks.parent != nullptr;
    if (after_parent) what.first_parent = host.acquire_one(blocks.family, *blocks.parent);
    // Parents may be evicted before there is a head.
    for (size_t i = n_heads; i < n && blocks.chained; ++i) note_parent(host, slots[i], parent_of(blocks, i));
    std::vector<Key> parents(host.events().wanted() ? n : 0);
    for (size_t i = 0; i < parents.size(); ++i) parents[i] = parent_of(blocks, i);
    all = stack.publish(slots, what, parents, codes, TierStack::Bringer{}, &resolver);
    note_stored(stack.unflushed(), blocks, codes);
    host.release(what.first_parent);
  } else {
    for (size_t i = 0; i < n; ++i) codes[i] = headed;
  }
  for (size_t i = 0; i < n_heads; ++i) {
    if (codes[i] == Code::ok) host.keep_over_restart(slots[i]);
  }
  // A refused block is left as it was: it may be registered again, with another key.
  for (size_t i = 0; i < n_heads; ++i) {
    if (codes[i] == Code::ok || codes[i] == Code::exists) continue;
    host.table().clear_flags(slots[i], kHasHead);
    host.arena().clear_head(slots[i]);
    note_payload_bytes(host, slots[i], host.table().payload_bytes(slots[i]));
  }
  return all;
}

}  // namespace kvbm::manager
