#include "manager/onboard.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "manager/host_record.h"
#include "manager/manager.h"

namespace kvbm::manager {

namespace {

struct FreeAligned {
  void operator()(std::byte* p) const noexcept { std::free(p); }
};

// The state of one batch between its request and its landing.
struct Landing {
  std::shared_ptr<Manager> manager;
  TierIndex tier = 0;
  bool keep = true;
  std::vector<OnboardItem> items;
  std::vector<uint64_t> marks;  // Manager::forget_mark, beside items
  std::vector<SlotId> slots;
  std::unique_ptr<std::byte, FreeAligned> heads;
  std::vector<size_t> head_at;  // offset of each item's head target
  UniqueFunction<void(std::vector<Landed>)> done;
};

// The slot of the block's parent with a reference, preferring the one that landed just before.
SlotId parent_slot(Landing& landing, const codec::Header& header, size_t i, std::span<const Landed> landed) {
  if (header.parent == Key{}) return kNoSlot;
  if (i != 0 && landed[i - 1].code == Code::ok && landing.items[i - 1].id.key == header.parent &&
      landing.items[i - 1].id.family == landing.items[i].id.family) {
    landing.manager->table().retain({&landed[i - 1].slot, 1});
    return landed[i - 1].slot;
  }
  return landing.manager->acquire_one(landing.items[i].id.family, header.parent);
}

Code register_landed(Landing& landing, size_t i, std::span<Landed> landed) {
  Manager& manager = *landing.manager;
  SlotId& slot = landed[i].slot;
  const ConstBytes head = {landing.heads.get() + landing.head_at[i], landing.items[i].found.head_bytes};
  const auto view = codec::HeadView::parse(head);
  const MutableBytes room = manager.arena().head(slot);
  if (!view.ok() || head.size() > room.size()) return view.ok() ? Code::mismatch : Code::damaged;
  manager.arena().clear_head(slot);
  std::memcpy(room.data(), head.data(), head.size());
  const Code completed = manager.table().complete({&slot, 1});
  if (completed != Code::ok) return completed;
  manager.table().set_flags(slot, static_cast<uint8_t>(kHasHead | on_tier_flag(landing.tier)));
  const Identity& id = landing.items[i].id;
  if (!landing.keep || manager.forgotten_since(id.family, landing.marks[i])) return Code::ok;
  const SlotId parent = parent_slot(landing, view.value().header(), i, landed);
  block::Publication what;
  what.family = landing.items[i].id.family;
  what.keys = {&landing.items[i].id.key, 1};
  what.lineage = block::Lineage::chain;
  what.first_parent = parent;
  what.tick = manager.tick();
  Code code = Code::ok;
  [[maybe_unused]] const Code all =
      manager.publish({&slot, 1}, what, {&view.value().header().parent, 1}, {&code, 1});
  if (parent != kNoSlot) manager.release({&parent, 1});
  if (code == Code::ok && manager.forgotten_since(id.family, landing.marks[i])) {
    manager.table().erase(id.family, {&id.key, 1});
    manager.events().publish(copy::EventKind::removed, 0, {&id, 1});
  }
  return code == Code::exists ? Code::ok : code;
}

void land(Landing& landing, tier::GetBatch& batch) {
  Manager& manager = *landing.manager;
  TierCounters& counters = manager.counters().tiers[landing.tier];
  std::vector<Landed> landed(landing.items.size());
  for (size_t i = 0; i < landed.size(); ++i) {
    landed[i].slot = landing.slots[i];
    landed[i].code = batch.status[i];
    if (landed[i].code == Code::ok) {
      landing.items[i].found.head_bytes = batch.items[i].head_bytes;
      landed[i].code = register_landed(landing, i, landed);
    }
    if (landed[i].code == Code::ok) {
      add(counters.loads, 1);
      add(counters.load_bytes, batch.items[i].payload_bytes);
      continue;
    }
    if (landed[i].code != Code::miss && landed[i].code != Code::deadline) add(counters.errors, 1);
    manager.release({&landed[i].slot, 1});
    landed[i].slot = kNoSlot;
  }
  landing.done(std::move(landed));
}

}  // namespace

void onboard(const std::shared_ptr<Manager>& manager, TierIndex tier, block::AccountId account,
             std::vector<OnboardItem> items, uint64_t deadline_ns, bool keep,
             UniqueFunction<void(std::vector<Landed>)> done) {
  auto landing = std::make_shared<Landing>();
  landing->manager = manager;
  landing->tier = tier;
  landing->keep = keep;
  landing->items = std::move(items);
  landing->done = std::move(done);
  const size_t n = landing->items.size();
  landing->slots.assign(n, kNoSlot);

  size_t head_total = 0;
  for (const OnboardItem& item : landing->items) {
    landing->head_at.push_back(head_total);
    landing->marks.push_back(manager->forget_mark(item.id.family));
    head_total += round_up(item.found.head_bytes == 0 ? manager->arena().head(0).size() : item.found.head_bytes, kIoAlign);
  }
  landing->heads.reset(static_cast<std::byte*>(std::aligned_alloc(kIoAlign, head_total)));
  Code code = landing->heads == nullptr ? Code::no_memory : Code::ok;
  if (code == Code::ok) code = manager->disabled(tier) ? Code::tier_disabled : code;
  if (code == Code::ok) code = manager->allocate(account, landing->slots, nullptr);
  if (code != Code::ok) {
    manager->env().executor->post([landing, code, n] {
      landing->done(std::vector<Landed>(n, Landed{code, kNoSlot}));
    });
    return;
  }
  auto batch = std::make_unique<tier::GetBatch>();
  batch->deadline_ns = deadline_ns;
  batch->status.assign(n, Code::internal);
  batch->items.resize(n);
  for (size_t i = 0; i < n; ++i) {
    manager->arena().clear_head(landing->slots[i]);
    batch->items[i].id = landing->items[i].id;
    batch->items[i].location = landing->items[i].found.location;
    const size_t end = i + 1 < n ? landing->head_at[i + 1] : head_total;
    batch->items[i].head = {landing->heads.get() + landing->head_at[i], end - landing->head_at[i]};
    batch->items[i].payload = manager->arena().payload(landing->slots[i]);
  }
  batch->done = [landing](tier::GetBatch& finished) { land(*landing, finished); };
  manager->tier_below(tier).get(std::move(batch));
}

}  // namespace kvbm::manager
