#include "manager/stack/onboard.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/io/file.h"
#include "base/thread/memory_wait.h"
#include "copy/cost.h"
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
  UniqueFunction<void(std::vector<Delivery>)> done;
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

// Returns the deliveries of a batch that could not be read.
std::vector<Delivery> undelivered(size_t n, Code code) {
  std::vector<Delivery> all(n);
  for (Delivery& one : all) one.code = code;
  return all;
}

// Passes on what was read for one item, or says why it was not read. Not registered yet.
Delivery deliver(Arrival& arrival, tier::GetBatch& batch, size_t i) {
  HostTier& host = arrival.stack->host();
  tier::GetItem& got = batch.items[i];
  Delivery one;
  one.code = batch.status[i];
  one.from = arrival.tier;
  one.slot = arrival.room.slots[i];
  one.location = got.location;
  one.mark = arrival.marks[i];
  std::shared_ptr<StagedBlock> staged;
  if (one.slot == kNoSlot) staged = std::move(arrival.room.staged[i]);
  if (one.code != Code::ok) return one;
  if (got.lender != nullptr) {
    one.payload = got.lent.data();
    one.keep = std::move(got.lender);
  } else if (staged != nullptr) {
    one.payload = staged->bytes.data();
    one.keep = std::move(staged);
  } else {
    one.payload = host.arena().payload(one.slot).data();
  }
  const ConstBytes head(arrival.heads.get() + arrival.head_at[i], got.head_bytes);
  if (got.coded.empty()) {
    one.code = settle_head(host, one, head, on_tier_flag(arrival.tier));
    return one;
  }
  auto coded = std::make_shared<CodedLanding>();
  coded->head.assign(head.begin(), head.end());
  coded->leaves = std::move(got.coded);
  one.head = coded->head;
  one.coded = std::move(coded);
  return one;
}

// Ends a batch. Places are passed to the receiver or released before `done` runs.
void land(Arrival& arrival, tier::GetBatch& batch) {
  TierStack& stack = *arrival.stack;
  HostTier& host = stack.host();
  learn(arrival, batch);
  TierCounters& counters = host.counters().tiers[arrival.tier];
  std::vector<Delivery> landed(arrival.items.size());
  for (size_t i = 0; i < landed.size(); ++i) {
    Delivery& one = landed[i];
    one = deliver(arrival, batch, i);
    if (one.code == Code::ok && arrival.registers) {
      one.code = stack.register_landed(arrival.items[i].id, one, arrival.waits);
    }
    if (one.code == Code::ok) {
      add(counters.loads, 1);
      add(counters.load_bytes, batch.items[i].payload_bytes);
      continue;
    }
    if (one.code != Code::miss && one.code != Code::deadline) add(counters.errors, 1);
    if (one.slot != kNoSlot) host.release({&one.slot, 1});
    one.slot = kNoSlot;
    one.keep = nullptr;
  }
  arrival.done(std::move(landed));
}

}  // namespace

void onboard(const std::shared_ptr<TierStack>& stack, TierIndex tier, block::AccountId account,
             std::vector<OnboardItem> items, uint64_t deadline_ns, tier::Accepts accepts,
             UniqueFunction<void(std::vector<Delivery>)> done) {
  const MemoryWait until_done;
  const size_t n = items.size();
  LandingRoom room;
  room.slots.assign(n, kNoSlot);
  const Code code = stack->lower().disabled(tier) ? Code::tier_disabled : stack->allocate(account, room.slots, nullptr);
  if (code == Code::ok) {
    return onboard(stack, tier, std::move(items), std::move(room), deadline_ns, std::move(accepts), std::move(done));
  }
  auto told = std::make_shared<UniqueFunction<void(std::vector<Delivery>)>>(std::move(done));
  stack->host().env().executor->post([told, code, n] {
    (*told)(undelivered(n, code));
  });
}

void onboard(const std::shared_ptr<TierStack>& stack, TierIndex tier, std::vector<OnboardItem> items, LandingRoom room,
             uint64_t deadline_ns, tier::Accepts accepts, UniqueFunction<void(std::vector<Delivery>)> done,
             bool waits) {
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
      arrival->done(undelivered(n, code));
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
