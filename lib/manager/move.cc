#include "manager/move.h"

#include <algorithm>
#include <utility>

#include "base/memory_wait.h"
#include "manager/manager.h"
#include "manager/offload.h"
#include "manager/onboard.h"

namespace kvbm::manager {

PrefetchOperation::PrefetchOperation(std::shared_ptr<Manager> manager, std::shared_ptr<Match> match, size_t n_keys,
                                     uint64_t deadline_ns)
    : Operation(*manager->env().executor, manager->counters(), copy::OpKind::prefetch, deadline_ns),
      manager_(std::move(manager)),
      match_(std::move(match)),
      n_keys_(n_keys) {}

Operation::Next PrefetchOperation::step() {
  if (asked_) return waiting_.load(std::memory_order_acquire) == 0 ? Next::finished : Next::wait;
  asked_ = true;
  const MemoryWait counted;  // what is acquired and asked for from here on is given back by others
  if (match_ == nullptr) return Next::finished;
  waiting_.store(1, std::memory_order_relaxed);  // until everything is asked for
  const MatchPart& part = match_->parts()[0];
  std::vector<std::vector<OnboardItem>> by_tier(manager_->tiers_below() + 1);
  auto self = std::static_pointer_cast<PrefetchOperation>(shared_from_this());
  const auto send = [&](TierIndex tier) {
    if (by_tier[tier].empty()) return;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    onboard(manager_, tier, match_->ns()->account(), std::move(by_tier[tier]), deadline_ns(), Landing::registered, {},
            [self](std::vector<Landed> landed) {
              std::vector<SlotId> slots;
              for (const Landed& one : landed) {
                if (one.code == Code::ok) slots.push_back(one.slot);
              }
              for (const SlotId slot : slots) {
                self->bytes_.fetch_add(self->manager_->table().payload_bytes(slot), std::memory_order_relaxed);
              }
              self->done_.fetch_add(slots.size(), std::memory_order_relaxed);
              self->manager_->release(slots);
              self->waiting_.fetch_sub(1, std::memory_order_release);
              self->wake();
            });
    by_tier[tier].clear();
  };
  for (size_t i = 0; i < match_->keys().size(); ++i) {
    const TierIndex tier = match_->tier_of(0, i);
    if (tier == 0) done_.fetch_add(1, std::memory_order_relaxed);
    if (tier == 0 || tier == kNoTier) continue;
    by_tier[tier].push_back({{match_->keys()[i], part.plan.family}, part.found[i]});
    if (by_tier[tier].size() == kBatch) send(tier);
  }
  for (size_t t = 1; t < by_tier.size(); ++t) send(static_cast<TierIndex>(t));
  return waiting_.fetch_sub(1, std::memory_order_acq_rel) == 1 ? Next::finished : Next::wait;
}

void PrefetchOperation::conclude(Code why, copy::Completion& completion) {
  completion.items = n_keys_;
  completion.items_done = done_.load(std::memory_order_relaxed);
  completion.bytes = bytes_.load(std::memory_order_relaxed);
  completion.status = why;
  // As for loads: nothing stays held when the completion is seen, unless reads still need the tiers' pins.
  if (waiting_.load(std::memory_order_acquire) == 0) match_ = nullptr;
}

OffloadOperation::OffloadOperation(std::shared_ptr<Manager> manager, TierIndex tier, FamilyId family,
                                   std::vector<Key> keys, uint64_t deadline_ns)
    : Operation(*manager->env().executor, manager->counters(), copy::OpKind::offload, deadline_ns),
      manager_(std::move(manager)),
      tier_(tier),
      family_(family),
      keys_(std::move(keys)) {}

Operation::Next OffloadOperation::step() {
  if (asked_) return waiting_.load(std::memory_order_acquire) == 0 ? Next::finished : Next::wait;
  asked_ = true;
  const MemoryWait counted;  // what is acquired and asked for from here on is given back by others
  std::vector<SlotId> slots(keys_.size(), kNoSlot);
  manager_->table().acquire_each(family_, keys_, slots, block::kNoUse);
  slots.erase(std::remove(slots.begin(), slots.end(), kNoSlot), slots.end());
  if (slots.empty()) return Next::finished;
  waiting_.store(slots.size(), std::memory_order_relaxed);
  auto self = std::static_pointer_cast<OffloadOperation>(shared_from_this());
  std::vector<uint32_t> sizes;
  for (const SlotId slot : slots) sizes.push_back(manager_->table().payload_bytes(slot));
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
  manager_->offloader(tier_).request(std::move(slots), std::move(report));
  return waiting_.load(std::memory_order_acquire) == 0 ? Next::finished : Next::wait;
}

void OffloadOperation::conclude(Code why, copy::Completion& completion) {
  completion.items = keys_.size();
  completion.items_done = done_.load(std::memory_order_relaxed);
  completion.bytes = bytes_.load(std::memory_order_relaxed);
  const auto error = static_cast<Code>(first_error_.load(std::memory_order_relaxed));
  completion.status = why != Code::ok              ? why
                      : error == Code::ok          ? Code::ok
                      : completion.items_done != 0 ? Code::partial
                                                   : error;
}

}  // namespace kvbm::manager
