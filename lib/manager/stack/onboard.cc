#include "manager/stack/onboard.h"

#include <algorithm>
#include <utility>

#include "base/io/file.h"
#include "base/memory/aligned_bytes.h"
#include "base/thread/memory_wait.h"
#include "copy/cost.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

namespace {

// State of one batch from its request until it is read.
struct Arrival {
  std::shared_ptr<TierStack> stack;
  TierIndex tier = 0;
  bool registers = true;
  bool waits = false;  // as TierStack::Bringer
  LandingRoom room;
  std::vector<uint64_t> found;  // payload bytes as found, one for each item,
  std::vector<uint64_t> marks;  // and Invalidations::mark at the time of the request
  AlignedBytes heads;
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
    const uint64_t found = arrival.found[i];
    if (batch.status[i] == Code::ok) got += found != 0 ? found : batch.items[i].payload_bytes;
    late = late || batch.status[i] == Code::deadline;
  }
  const Answer how = late ? Answer::late : got != 0 ? Answer::arrived : Answer::nothing;
  TierStack& stack = *arrival.stack;
  stack.lower().cost(arrival.tier).answered(stack.host().env().clock().now_ns(), arrival.ticket, how, got);
}

// Answers for `n` items that cannot be read.
void refuse(const std::shared_ptr<TierStack>& stack, size_t n, Code code,
            UniqueFunction<void(std::vector<Delivery>)> done) {
  stack->host().env().executor->post([stack, n, code, done = std::move(done)]() mutable {
    std::vector<Delivery> none(n);
    for (Delivery& one : none) one.code = code;
    done(std::move(none));
  });
}

// Completes a delivery by what was read. Not registered yet.
Code settle(HostTier& host, tier::GetItem& got, Delivery& one) {
  if (got.lender != nullptr) {
    one.payload = got.lent.data();
    one.keep = std::move(got.lender);
  }
  const ConstBytes head = ConstBytes(got.head).first(got.head_bytes);
  if (got.coded.empty()) return settle_head(host, one, head, on_tier_flag(one.from));
  auto coded = std::make_shared<CodedLanding>();
  coded->head.assign(head.begin(), head.end());
  coded->leaves = std::move(got.coded);
  one.head = coded->head;
  one.coded = std::move(coded);
  return Code::ok;
}

// Passes the place of item `i` on with what was read into it, or releases it.
Delivery deliver(Arrival& arrival, size_t i, tier::GetItem& got, Code code) {
  HostTier& host = arrival.stack->host();
  Delivery one;
  one.from = arrival.tier;
  one.slot = arrival.room.slots[i];
  one.location = got.location;
  one.mark = arrival.marks[i];
  one.payload = got.payload.data();
  if (one.slot == kNoSlot) one.keep = std::move(arrival.room.staged[i]);
  one.code = code == Code::ok ? settle(host, got, one) : code;
  if (one.code == Code::ok && arrival.registers && one.slot != kNoSlot)
    one.code = arrival.stack->register_landed(got.id, one, arrival.waits);
  TierCounters& counters = host.counters().tiers[arrival.tier];
  if (one.code == Code::ok) {
    add(counters.loads, 1);
    add(counters.load_bytes, got.payload_bytes);
    return one;
  }
  if (one.code != Code::miss && one.code != Code::deadline) add(counters.errors, 1);
  host.release(one.slot);
  one.slot = kNoSlot;
  one.keep = nullptr;
  return one;
}

// Ends a batch.
void land(Arrival& arrival, tier::GetBatch& batch) {
  const MemoryWait until_done;
  learn(arrival, batch);
  std::vector<Delivery> landed;
  landed.reserve(batch.items.size());
  for (size_t i = 0; i < batch.items.size(); ++i)
    landed.push_back(deliver(arrival, i, batch.items[i], batch.status[i]));
  arrival.done(std::move(landed));
}

}  // namespace

void onboard(const std::shared_ptr<TierStack>& stack, TierIndex tier, std::unique_ptr<tier::GetBatch> batch,
             LandingRoom room, UniqueFunction<void(std::vector<Delivery>)> done, bool waits) {
  const MemoryWait until_done;  // `done` must be called in any case
  HostTier& host = stack->host();
  std::vector<tier::GetItem>& items = batch->items;
  // The longest head that a record of this host has. The reported length may come from another node and is capped by
  // it.
  const size_t longest = host.arena().head(0).size();
  const auto head_room = [longest](const tier::GetItem& item) {
    return round_up(item.head_bytes == 0 ? longest : std::min<size_t>(item.head_bytes, longest), kIoAlign);
  };
  size_t head_total = 0;
  for (const tier::GetItem& item : items) head_total += head_room(item);
  auto arrival = std::make_shared<Arrival>();
  arrival->heads = aligned_bytes(kIoAlign, head_total);
  Code code = arrival->heads == nullptr ? Code::no_memory : Code::ok;
  if (code == Code::ok && stack->lower().disabled(tier)) code = Code::tier_disabled;
  if (code != Code::ok) {
    std::erase(room.slots, kNoSlot);
    host.release(room.slots);
    return refuse(stack, items.size(), code, std::move(done));
  }
  arrival->stack = stack;
  arrival->tier = tier;
  arrival->registers = !batch->accepts.verifies;
  arrival->waits = waits;
  arrival->done = std::move(done);
  arrival->room = std::move(room);
  std::byte* head = arrival->heads.get();
  uint64_t bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    tier::GetItem& item = items[i];
    const SlotId slot = arrival->room.slots[i];
    arrival->marks.push_back(host.invalidations().mark(item.id.family));
    if (slot != kNoSlot) host.arena().clear_head(slot);
    item.payload = slot != kNoSlot ? host.arena().payload(slot) : arrival->room.staged[i]->bytes;
    item.head = {head, head_room(item)};
    head += item.head.size();
    arrival->found.push_back(item.payload_bytes);
    bytes += item.payload_bytes;
  }
  batch->status.assign(items.size(), Code::internal);
  batch->done = [arrival](tier::GetBatch& finished) { land(*arrival, finished); };
  arrival->ticket = stack->lower().cost(tier).asked(host.env().clock().now_ns(), bytes);
  stack->lower().tier(tier).get(std::move(batch));
}

}  // namespace kvbm::manager
