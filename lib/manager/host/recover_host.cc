// Recovery of the host tier's file by a restarted process.
//
// A slot counts if its mark is that of its head (tier/host/host_arena.h). Every head is checked here (root hash),
// payloads before their first use. A fresh table hands out every slot exactly once, so slots keep their numbers:
// those with a block are registered, parents first, the others freed.
#include <algorithm>
#include <map>
#include <vector>

#include "base/thread/memory_wait.h"
#include "codec/coded/coded_record.h"
#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"
#include "manager/host/host_record.h"
#include "manager/host/host_tier.h"

namespace kvbm::manager {

namespace {

struct FoundRecord {
  Identity id;
  Identity parent;
  bool has_parent = false;
  bool registered = false;
};

class HostRecovery {
 public:
  HostRecovery(block::BlockTable& table, Recovered& recovered, std::vector<FoundRecord> records,
               const std::vector<SlotId>& slots)
      : table_(table), recovered_(recovered), records_(std::move(records)), slots_(slots) {
    for (size_t i = 0; i < records_.size(); ++i) {
      // A second record of the same block is ignored: no process leaves two, and only one can be registered.
      if (!by_id_.emplace(records_[i].id, i).second) records_[i].registered = true;
    }
  }

  void run() {
    for (size_t i = 0; i < records_.size(); ++i) add_with_parents(i);
  }

 private:
  // Walks up to the first ancestor that is registered or gone, then registers on the way down.
  void add_with_parents(size_t index) {
    std::vector<size_t> path;
    for (size_t at = index; !records_[at].registered;) {
      records_[at].registered = true;  // this also ends the walk if damaged parents form a ring
      path.push_back(at);
      const auto parent = records_[at].has_parent ? by_id_.find(records_[at].parent) : by_id_.end();
      if (parent == by_id_.end()) break;
      at = parent->second;
    }
    for (auto it = path.rbegin(); it != path.rend(); ++it) add(*it);
  }

  void add(size_t index) {
    const FoundRecord& record = records_[index];
    SlotId slot = slots_[index];
    const auto parent = record.has_parent ? by_id_.find(record.parent) : by_id_.end();
    block::Publication what;
    what.family = record.id.family;
    what.keys = {&record.id.key, 1};
    what.lineage = block::Lineage::chain;
    what.first_parent = parent == by_id_.end() ? kNoSlot : slots_[parent->second];
    Code code = Code::ok;
    if (table_.complete({&slot, 1}) != Code::ok) return;
    [[maybe_unused]] const Code all = table_.publish({&slot, 1}, what, {&code, 1});
    if (code != Code::ok) return;
    table_.set_flags(slot, kHasHead);
    recovered_.add(slot);
  }

  block::BlockTable& table_;
  Recovered& recovered_;
  std::vector<FoundRecord> records_;
  const std::vector<SlotId>& slots_;
  std::map<Identity, size_t> by_id_;
};

}  // namespace

void HostTier::recover() {
  if (!arena_->recovered()) return;
  std::vector<SlotId> all(arena_->slots());
  recovered_.begin(arena_->slots());
  std::vector<FoundRecord> records;
  std::vector<SlotId> slots;
  // The table is new, and every slot is free.
  if (table_->allocate(block::kSharedAccount, all, nullptr) != Code::ok) {
    return std::fill(arena_->marks().begin(), arena_->marks().end(), 0);
  }
  for (const SlotId slot : all) {
    const uint64_t mark = arena_->marks()[slot];
    if (mark <= block::SlotMarks::kEnded || mark != arena_->mark_of(slot)) continue;
    const auto view = codec::HeadView::parse(arena_->head(slot));
    if (!view.ok() || view.value().header().stored_bytes > arena_->block_bytes()) continue;
    if (codec::is_coded(view.value())) continue;
    const codec::Header& header = view.value().header();
    if ((header.flags & codec::kLossy) != 0) note_lossy();
    if ((header.flags & codec::kContentKey) != 0) note_positions();
    const auto family = families_.intern(Family{header.ns, header.geometry, header.component, header.shard});
    if (!family.ok()) continue;
    FoundRecord record;
    record.id = {header.key, family.value()};
    record.parent = {header.parent, family.value()};
    record.has_parent = header.parent != Key{};
    records.push_back(record);
    unit_index_->add(record.id.family, record.id.key, unit_keys(view.value()));
    slots.push_back(slot);
    table_->set_payload_bytes(slot, static_cast<uint32_t>(header.stored_bytes));
  }
  HostRecovery(*table_, recovered_, std::move(records), slots).run();
  table_->release(all, 0);  // slots without a block lose their marks
}

bool HostTier::check_recovered(SlotId slot) {
  const auto head = read_head(*this, slot);
  bool right = head.ok();
  const ConstBytes payload = arena_->payload(slot);
  for (uint32_t i = 0; right && i < head.value().header().leaf_count; ++i) {
    const codec::Leaf leaf = head.value().leaf(i);
    right = codec::leaf_hash(payload.subspan(leaf.offset, leaf.stored_bytes)) == leaf.hash;
  }
  if (right) {
    recovered_.remove(slot);
  } else {
    const MemoryWait counted;
    quarantine(slot);  // its bit stays: other holders must not rely on it either
  }
  return right;
}

void HostTier::trust_present(FamilyId family, std::span<const Key> keys) {
  if (!recovered_.any()) return;
  for (const Key& key : keys) {
    const SlotId slot = acquire_one(family, key);
    if (slot == kNoSlot) continue;
    (void)trust(slot);
    release({&slot, 1});
  }
}

}  // namespace kvbm::manager
