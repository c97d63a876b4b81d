#include "manager/stack/onboard.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/io/file.h"
#include "base/thread/memory_wait.h"
#include "codec/coded/coded_record.h"
#include "copy/cost.h"
#include "manager/host/host_record.h"
#include "manager/host/newcomers.h"
#include "manager/lower/offload.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

struct FreeAligned {
  void operator()(std::byte* p) const noexcept { std::free(p); }
};

// State of one batch from its request until it is read.
struct Arrival {
  std::shared_ptr<TierStack> stack;
  TierIndex tier = 0;
  bool registers = true;
  bool waits = false;  // as TierStack::Bringer
  std::vector<OnboardItem> items;
  std::vector<uint64_t> marks;  // Invalidations::mark, parallel to items
  LandingRoom room;
  std::unique_ptr<std::byte, FreeAligned> heads;
  std::vector<size_t> head_at;  // offset of each item's head target
  copy::SourceCost::Ticket ticket;
  UniqueFunction<void(std::vector<Landed>)> done;
};

// Reports the outcome of a batch to the tier's cost.
void learn(Arrival& arrival, const tier::GetBatch& batch) {
  using Answer = copy::SourceCost::Answer;
  uint64_t got = 0;
  bool late = false;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    // Counts the size found in the tier, because that was read: a coded record is larger once decoded.
    const uint64_t found = arrival.items[i].found.payload_bytes;
    if (batch.status[i] == Code::ok) got += found != 0 ? found : batch.items[i].payload_bytes;
    late = late || batch.status[i] == Code::deadline;
  }
  const Answer how = late ? Answer::late : got != 0 ? Answer::arrived : Answer::nothing;
  TierStack& stack = *arrival.stack;
  stack.lower().cost(arrival.tier).answered(stack.host().env().clock().now_ns(), arrival.ticket, how, got);
}

// Keeps the head of a record beside the host with the record; no other operation sees it.
Code keep_head(HostTier& host, ConstBytes head, Landed& one) {
  const auto view = codec::HeadView::parse(head);
  if (!view.ok()) return Code::damaged;
  if (codec::is_coded(view.value())) return Code::mismatch;  // the tier that delivered it should have decoded it
  if ((view.value().header().flags & codec::kLossy) != 0) host.note_lossy();
  one.head = std::make_shared<const std::vector<std::byte>>(head.begin(), head.end());
  return Code::ok;
}

// Ends a batch. Places are passed to the receiver or released before `done` runs.
void land(Arrival& arrival, tier::GetBatch& batch) {
  TierStack& stack = *arrival.stack;
  HostTier& host = stack.host();
  learn(arrival, batch);
  TierCounters& counters = host.counters().tiers[arrival.tier];
  std::vector<Landed> landed(arrival.items.size());
  for (size_t i = 0; i < landed.size(); ++i) {
    Landed& one = landed[i];
    one = {batch.status[i], arrival.room.slots[i], batch.items[i].location, arrival.marks[i], {}, {}, {}, {}};
    std::shared_ptr<StagedBlock> staged;
    if (one.slot == kNoSlot) staged = std::move(arrival.room.staged[i]);
    const ConstBytes head(arrival.heads.get() + arrival.head_at[i], batch.items[i].head_bytes);
    if (one.code == Code::ok && !batch.items[i].coded.empty()) {
      auto coded = std::make_shared<CodedLanding>();
      coded->head.assign(head.begin(), head.end());
      coded->leaves = std::move(batch.items[i].coded);
      one.coded = std::move(coded);
    } else if (one.code == Code::ok && staged != nullptr) {
      one.code = keep_head(host, head, one);
    } else if (one.code == Code::ok) {
      one.code = settle_head(host, one.slot, arrival.tier, head);
    }
    if (one.code == Code::ok && arrival.registers)
      one.code = register_landed(stack, one.slot, arrival.items[i].id, one.mark, arrival.waits);
    if (one.code == Code::ok) {
      one.lent = batch.items[i].lent;
      one.lender = std::move(batch.items[i].lender);
      if (one.lender == nullptr && staged != nullptr) {
        one.lent = staged->bytes;
        one.lender = std::move(staged);
      }
      add(counters.loads, 1);
      add(counters.load_bytes, batch.items[i].payload_bytes);
      continue;
    }
    if (one.code != Code::miss && one.code != Code::deadline) add(counters.errors, 1);
    if (one.slot != kNoSlot) host.release({&one.slot, 1});
    one.slot = kNoSlot;
  }
  arrival.done(std::move(landed));
}

}  // namespace

Code settle_head(HostTier& host, SlotId slot, TierIndex tier, ConstBytes head) {
  const auto view = codec::HeadView::parse(head);
  const MutableBytes room = host.arena().head(slot);
  if (!view.ok() || head.size() > room.size()) return view.ok() ? Code::mismatch : Code::damaged;
  if (codec::is_coded(view.value())) return Code::mismatch;  // the tier that delivered it should have decoded it
  if ((view.value().header().flags & codec::kLossy) != 0) host.note_lossy();
  if ((view.value().header().flags & codec::kContentKey) != 0) host.note_positions();
  host.arena().clear_head(slot);
  std::memcpy(room.data(), head.data(), head.size());
  host.table().set_payload_bytes(slot, static_cast<uint32_t>(view.value().header().stored_bytes));
  const Code completed = host.table().complete({&slot, 1});
  if (completed != Code::ok) return completed;
  host.table().set_flags(slot, static_cast<uint8_t>(tier == kOtherSize ? kHasHead : kHasHead | on_tier_flag(tier)));
  return Code::ok;
}

Code register_landed(TierStack& stack, SlotId& inout_slot, const Identity& id, uint64_t mark, bool waits) {
  HostTier& host = stack.host();
  if (host.invalidations().since(id.family, mark)) return Code::ok;
  const MemoryWait registered;  // nothing may fail from here on: references must be released, and a findable block
                                // marked for restarts
  const auto view = codec::HeadView::parse(host.arena().head(inout_slot));
  if (!view.ok()) return Code::damaged;
  const Key parent = view.value().header().parent;
  Newcomers newcomer(host, (view.value().header().flags & codec::kLossy) != 0);
  const std::vector<Key> units = unit_keys(view.value());
  const SlotId parent_slot = parent == Key{} ? kNoSlot : host.acquire_one(id.family, parent);
  block::Publication what;
  what.family = id.family;
  what.keys = {&id.key, 1};
  what.lineage = block::Lineage::chain;
  what.first_parent = parent_slot;
  what.precedence = &newcomer;
  what.tick = host.tick();
  Code code = Code::ok;
  [[maybe_unused]] const Code all =
      stack.publish({&inout_slot, 1}, what, {&parent, 1}, {&code, 1}, {kNoTier, waits}, &newcomer);
  if (parent_slot != kNoSlot) host.release({&parent_slot, 1});
  if (code == Code::ok) host.unit_index().add(id.family, id.key, units);
  if (code == Code::ok && host.invalidations().since(id.family, mark)) {
    host.table().erase(id.family, {&id.key, 1});
    host.events().publish(copy::EventKind::removed, 0, {&id, 1});
  } else if (code == Code::ok) {
    host.keep_over_restart(inout_slot);
    // The source tier may have evicted the record before there was a block to unmark.
    for (TierIndex i = 1; i <= stack.lower().count(); ++i) {
      if ((host.table().flags(inout_slot) & on_tier_flag(i)) != 0) stack.lower().offloader(i).confirm({&inout_slot, 1});
    }
  }
  return code == Code::exists ? Code::ok : code;
}

void onboard(const std::shared_ptr<TierStack>& stack, TierIndex tier, block::AccountId account,
             std::vector<OnboardItem> items, uint64_t deadline_ns, tier::Accepts accepts,
             UniqueFunction<void(std::vector<Landed>)> done) {
  const MemoryWait until_done;
  const size_t n = items.size();
  LandingRoom room;
  room.slots.assign(n, kNoSlot);
  const Code code = stack->lower().disabled(tier) ? Code::tier_disabled : stack->allocate(account, room.slots, nullptr);
  if (code == Code::ok) {
    return onboard(stack, tier, std::move(items), std::move(room), deadline_ns, std::move(accepts), std::move(done));
  }
  auto none = std::make_shared<UniqueFunction<void(std::vector<Landed>)>>(std::move(done));
  stack->host().env().executor->post([none, code, n] {
    (*none)(std::vector<Landed>(n, Landed{code, kNoSlot, 0, 0, {}, {}, {}, {}}));
  });
}

void onboard(const std::shared_ptr<TierStack>& stack, TierIndex tier, std::vector<OnboardItem> items, LandingRoom room,
             uint64_t deadline_ns, tier::Accepts accepts, UniqueFunction<void(std::vector<Landed>)> done, bool waits) {
  const MemoryWait until_done;  // `done` must be called in any case
  HostTier& host = stack->host();
  auto arrival = std::make_shared<Arrival>();
  arrival->stack = stack;
  arrival->tier = tier;
  arrival->registers = !accepts.verifies;
  arrival->waits = waits;
  arrival->items = std::move(items);
  arrival->done = std::move(done);
  const size_t n = arrival->items.size();
  arrival->room = std::move(room);

  size_t head_total = 0;
  // The longest head that a record of this host has. The reported length may come from another node and is capped by
  // it.
  const size_t longest = host.arena().head(0).size();
  for (const OnboardItem& item : arrival->items) {
    arrival->head_at.push_back(head_total);
    arrival->marks.push_back(host.invalidations().mark(item.id.family));
    const size_t head = item.found.head_bytes == 0 ? longest : std::min<size_t>(item.found.head_bytes, longest);
    head_total += round_up(head, kIoAlign);
  }
  arrival->heads.reset(static_cast<std::byte*>(std::aligned_alloc(kIoAlign, head_total)));
  Code code = arrival->heads == nullptr ? Code::no_memory : Code::ok;
  if (code == Code::ok) code = stack->lower().disabled(tier) ? Code::tier_disabled : code;
  if (code != Code::ok) {
    for (const SlotId slot : arrival->room.slots) {
      if (slot != kNoSlot) host.release({&slot, 1});
    }
    arrival->room = {};
    host.env().executor->post([arrival, code, n] {
      arrival->done(std::vector<Landed>(n, Landed{code, kNoSlot, 0, 0, {}, {}, {}, {}}));
    });
    return;
  }
  auto batch = std::make_unique<tier::GetBatch>();
  uint64_t bytes = 0;
  batch->deadline_ns = deadline_ns;
  batch->accepts = std::move(accepts);
  batch->status.assign(n, Code::internal);
  batch->items.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const SlotId slot = arrival->room.slots[i];
    if (slot != kNoSlot) host.arena().clear_head(slot);
    batch->items[i].id = arrival->items[i].id;
    batch->items[i].location = arrival->items[i].found.location;
    const size_t end = i + 1 < n ? arrival->head_at[i + 1] : head_total;
    batch->items[i].head = {arrival->heads.get() + arrival->head_at[i], end - arrival->head_at[i]};
    batch->items[i].payload = slot != kNoSlot ? host.arena().payload(slot) : arrival->room.staged[i]->bytes;
    bytes += arrival->items[i].found.payload_bytes;
  }
  batch->done = [arrival](tier::GetBatch& finished) { land(*arrival, finished); };
  arrival->ticket = stack->lower().cost(tier).asked(host.env().clock().now_ns(), bytes);
  stack->lower().tier(tier).get(std::move(batch));
}

}  // namespace kvbm::manager
