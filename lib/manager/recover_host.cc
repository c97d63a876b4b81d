// What a restarted process finds in the file of its host tier.
//
// Every head is checked here (root hash), payloads when they are read. A fresh table hands out every slot exactly
// once, so slots keep their numbers: those with a valid head are registered, parents first, the others freed.
#include <map>
#include <vector>

#include "manager/host_record.h"
#include "manager/manager.h"
#include "codec/record.h"

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
  HostRecovery(block::BlockTable& table, std::vector<FoundRecord> records, const std::vector<SlotId>& slots)
      : table_(table), records_(std::move(records)), slots_(slots) {
    for (size_t i = 0; i < records_.size(); ++i) by_id_.emplace(records_[i].id, i);
  }

  size_t run() {
    size_t n = 0;
    for (size_t i = 0; i < records_.size(); ++i) n += add_with_parents(i);
    return n;
  }

 private:
  // Walks up to the first ancestor that is registered or gone, then registers on the way down.
  size_t add_with_parents(size_t index) {
    std::vector<size_t> path;
    for (size_t at = index; !records_[at].registered;) {
      records_[at].registered = true;  // also ends the walk if damaged parents form a ring
      path.push_back(at);
      const auto parent = records_[at].has_parent ? by_id_.find(records_[at].parent) : by_id_.end();
      if (parent == by_id_.end()) break;
      at = parent->second;
    }
    for (auto it = path.rbegin(); it != path.rend(); ++it) add(*it);
    return path.size();
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
    if (code == Code::ok) table_.set_flags(slot, kHasHead);
  }

  block::BlockTable& table_;
  std::vector<FoundRecord> records_;
  const std::vector<SlotId>& slots_;
  std::map<Identity, size_t> by_id_;
};

}  // namespace

void Manager::recover_host() {
  std::vector<SlotId> all(arena_->slots());
  if (table_->allocate(block::kSharedAccount, all, nullptr) != Code::ok) return;
  std::vector<FoundRecord> records;
  std::vector<SlotId> slots;
  for (const SlotId slot : all) {
    const auto view = codec::HeadView::parse(arena_->head(slot));
    if (!view.ok() || view.value().header().stored_bytes > arena_->block_bytes()) {
      arena_->clear_head(slot);
      continue;
    }
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
  HostRecovery(*table_, std::move(records), slots).run();
  table_->release(all, 0);
}

}  // namespace kvbm::manager
