#include "manager/operation/move.h"

#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "manager/lower/offload.h"
#include "manager/operation/reslice_landing.h"
#include "manager/stack/onboard.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

PrefetchOperation::PrefetchOperation(std::shared_ptr<TierStack> stack, std::shared_ptr<Match> match, size_t n_keys,
                                     uint64_t deadline_ns)
    : Operation(*stack->host().env().executor, stack->host().counters(), copy::OpKind::prefetch, deadline_ns),
      stack_(std::move(stack)),
      host_(stack_->host()),
      match_(std::move(match)),
      n_keys_(n_keys),
      place_(host_.space_queue().place_of_prefetch()) {}

Operation::Next PrefetchOperation::step() {
  const MemoryWait counted;  // other threads end the requests made from here on, so this must not fail
  if (match_ == nullptr) return Next::finished;
  if (!planned_) plan();
  while (next_ < wanted_.size()) {
    if (bring_some() == Next::wait) return Next::wait;
  }
  return waiting_.load(std::memory_order_acquire) == 0 ? Next::finished : Next::wait;
}

void PrefetchOperation::plan() {
  planned_ = true;
  for (size_t i = 0; i < match_->keys().size(); ++i) {
    const TierIndex tier = match_->tier_of(0, i);
    if (tier == 0) done_.fetch_add(1, std::memory_order_relaxed);
    if (tier == 0) holds_ = true;
    if (tier != 0 && tier != kNoTier) wanted_.push_back(i);
  }
  std::stable_sort(wanted_.begin(), wanted_.end(),
                   [this](size_t a, size_t b) { return match_->tier_of(0, a) < match_->tier_of(0, b); });
}

// Requests the next keys, as many as there are slots for. wait: another thread will wake this.
Operation::Next PrefetchOperation::bring_some() {
  SpaceQueue& queue = host_.space_queue();
  const uint64_t mine = waiting_.load(std::memory_order_acquire);
  const uint64_t most = std::max<uint64_t>(host_.arena().slots() / 4, 1);
  // Reads in flight complete whatever others do, so an operation that has some does not wait in the space queue.
  if (mine >= most || (mine != 0 && queue.waiting() != 0)) return Next::wait;
  const TierIndex tier = match_->tier_of(0, wanted_[next_]);
  size_t n = 1;
  const size_t limit = std::min({wanted_.size() - next_, kBatch, static_cast<size_t>(most - mine)});
  while (n < limit && match_->tier_of(0, wanted_[next_ + n]) == tier) ++n;
  const block::AccountId account = match_->ns()->account();
  const auto self = std::static_pointer_cast<PrefetchOperation>(shared_from_this());
  Code code = Code::no_room;
  auto verdict = mine != 0 ? SpaceQueue::Verdict::try_it : queue.ask(self, place_, account, holds_);
  while (verdict == SpaceQueue::Verdict::try_it) {
    LandingRoom room;
    code = take_slots_without_loss(*stack_, account, n, room);
    if (room.count() != 0) {
      ask(std::move(room));
      return Next::more;
    }
    if (mine != 0) return Next::wait;
    verdict = queue.may_wait_after(code, account)
                  ? queue.refused(self, place_, account, holds_, code, stack_->lower().offloading_blocks() != 0)
                  : SpaceQueue::Verdict::refused;
    if (verdict != SpaceQueue::Verdict::refused && code == Code::no_room) stack_->lower().yield_offloads(n);
  }
  if (verdict == SpaceQueue::Verdict::wait) {
    if (waits_since_ns_ == 0) waits_since_ns_ = host_.env().clock().now_ns();
    return Next::wait;
  }
  // No slot will become free, or not in time: blocks that could not be written down are evicted now.
  LandingRoom room;
  if (queue.may_wait_after(code, account) && !host_.closing()) code = take_slots(*stack_, account, n, room);
  if (room.count() != 0) {
    ask(std::move(room));
    return Next::more;
  }
  end_wait(false);
  queue.log_refused("a prefetch", code, waited_ns_, stack_->lower().offloading_blocks());
  add(host_.counters().prefetch_refused, wanted_.size() - next_);
  next_ = wanted_.size();
  return Next::more;
}

void PrefetchOperation::ask(LandingRoom room) {
  end_wait(true);
  const auto keys = std::span<const size_t>(wanted_).subspan(next_, room.count());
  const MatchPart& part = match_->parts()[0];
  const TierIndex tier = match_->tier_of(0, keys[0]);
  next_ += keys.size();
  waiting_.fetch_add(keys.size(), std::memory_order_relaxed);
  auto self = std::static_pointer_cast<PrefetchOperation>(shared_from_this());
  if (tier == kOtherSize) {
    std::vector<ResliceItem> made;
    for (const size_t key : keys) made.push_back({0, key});
    return onboard_resliced(match_, std::move(made), std::move(room), deadline_ns(), true,
                            [self](std::vector<Delivery> came) { self->landed(std::move(came)); });
  }
  auto batch = std::make_unique<tier::GetBatch>();
  batch->deadline_ns = deadline_ns();
  for (const size_t key : keys) {
    batch->items.push_back(request_of({match_->keys()[key], part.plan.family}, part.found[key]));
  }
  onboard(stack_, tier, std::move(batch), std::move(room),
          [self](std::vector<Delivery> came) { self->landed(std::move(came)); });
}

void PrefetchOperation::landed(std::vector<Delivery> landed) {
  std::vector<SlotId> slots;
  for (const Delivery& one : landed) {
    if (one.code == Code::ok) slots.push_back(one.slot);
  }
  for (const SlotId slot : slots) {
    bytes_.fetch_add(host_.table().payload_bytes(slot), std::memory_order_relaxed);
  }
  done_.fetch_add(slots.size(), std::memory_order_relaxed);
  host_.release(slots);
  waiting_.fetch_sub(landed.size(), std::memory_order_release);
  wake();
}

// Leaves the space queue.
void PrefetchOperation::end_wait(bool got_some) {
  host_.space_queue().leave(place_, got_some);
  if (waits_since_ns_ == 0) return;
  // Counts at least 1 ns, because 0 stands for an operation that did not wait.
  waited_ns_ += std::max<uint64_t>(host_.env().clock().now_ns() - waits_since_ns_, 1);
  waits_since_ns_ = 0;
}

void PrefetchOperation::conclude(Code why, copy::Completion& completion) {
  end_wait(false);
  if (waited_ns_ != 0) host_.counters().prefetch_room_wait.record(waited_ns_);
  completion.items = n_keys_;
  completion.items_done = done_.load(std::memory_order_relaxed);
  completion.bytes = bytes_.load(std::memory_order_relaxed);
  completion.status = why;
  // The match is released before the completion is visible, like a load's, unless reads still need the tiers' pins.
  if (waiting_.load(std::memory_order_acquire) == 0) match_ = nullptr;
}

OffloadOperation::OffloadOperation(std::shared_ptr<TierStack> stack, TierIndex tier, FamilyId family,
                                   std::vector<Key> keys, uint64_t deadline_ns)
    : Operation(*stack->host().env().executor, stack->host().counters(), copy::OpKind::offload, deadline_ns),
      stack_(std::move(stack)),
      host_(stack_->host()),
      tier_(tier),
      n_keys_(keys.size()),
      slots_(keys.size(), kNoSlot) {
  host_.table().acquire_each(family, keys, slots_, block::kNoUse);
  slots_.erase(std::remove(slots_.begin(), slots_.end(), kNoSlot), slots_.end());
}

void OffloadOperation::release_slots() noexcept {
  if (slots_.empty()) return;
  const MemoryWait no_error_path;
  host_.release(std::exchange(slots_, {}));
}

Operation::Next OffloadOperation::step() {
  if (asked_) return waiting_.load(std::memory_order_acquire) == 0 ? Next::finished : Next::wait;
  asked_ = true;
  const MemoryWait counted;  // other threads end the requests made from here on, so this must not fail
  if (slots_.empty()) return Next::finished;
  waiting_.store(slots_.size(), std::memory_order_relaxed);
  auto self = std::static_pointer_cast<OffloadOperation>(shared_from_this());
  std::vector<uint32_t> sizes;
  for (const SlotId slot : slots_) sizes.push_back(host_.table().payload_bytes(slot));
  auto report = std::make_shared<Offloader::Report>([self, sizes = std::move(sizes)](size_t index, Code code) {
    if (code == Code::ok) {
      self->done_.fetch_add(1, std::memory_order_relaxed);
      self->bytes_.fetch_add(sizes[index], std::memory_order_relaxed);
    } else {
      int32_t none = 0;
      self->first_error_.compare_exchange_strong(none, static_cast<int32_t>(code), std::memory_order_relaxed);
    }
    self->waiting_.fetch_sub(1, std::memory_order_release);
    self->wake();
  });
  stack_->lower().offloader(tier_).request(std::exchange(slots_, {}), std::move(report));
  return waiting_.load(std::memory_order_acquire) == 0 ? Next::finished : Next::wait;
}

void OffloadOperation::conclude(Code why, copy::Completion& completion) {
  release_slots();
  completion.items = n_keys_;
  completion.items_done = done_.load(std::memory_order_relaxed);
  completion.bytes = bytes_.load(std::memory_order_relaxed);
  const auto error = static_cast<Code>(first_error_.load(std::memory_order_relaxed));
  completion.status = why != Code::ok              ? why
                      : error == Code::ok          ? Code::ok
                      : completion.items_done != 0 ? Code::partial
                                                   : error;
}

}  // namespace kvbm::manager
