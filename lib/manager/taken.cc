#include "manager/taken.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/memory_wait.h"

namespace kvbm::manager {

bool TakenBlocks::keep(std::span<const SlotId> slots, uint64_t now_ns, uint32_t tick) {
  if (slots.empty()) return false;
  const MemoryWait nobody_to_tell;
  const size_t most = std::max<size_t>(table_.slots() / 2, 1);
  bool first = false;
  size_t over = 0;
  {
    MutexLock lock(mutex_);
    first = !std::exchange(awaited_, true);
    for (const SlotId slot : slots) kept_.push_back({slot, now_ns + kKeptNs});
    over = kept_.size() - std::min(kept_.size(), most);
  }
  drop(over, tick);
  return first;
}

void TakenBlocks::given(std::span<const SlotId> slots) noexcept {
  for (const SlotId slot : slots) given_[slot].store(table_.generation(slot) + 1, std::memory_order_relaxed);
  if (!slots.empty()) any_given_.store(true, std::memory_order_release);  // evicted()
}

void TakenBlocks::evicted(std::span<const block::Evicted> gone, uint8_t own) noexcept {
  if (!any_given_.load(std::memory_order_acquire)) return;  // given()
  const auto lost = std::count_if(gone.begin(), gone.end(), [this, own](const block::Evicted& one) {
    return (one.flags & own) == 0 && given_[one.slot].load(std::memory_order_relaxed) == one.generation + 1;
  });
  lost_.fetch_add(static_cast<uint64_t>(lost), std::memory_order_relaxed);
}

bool TakenBlocks::let_go_some(uint32_t tick) {
  // Not too many rounds where they are many.
  constexpr size_t kShare = 32;
  size_t n = 0;
  {
    MutexLock lock(mutex_);
    n = std::min(kept_.size(), std::max<size_t>(kept_.size() / kShare, 1));
  }
  drop(n, tick);
  return n != 0;
}

uint64_t TakenBlocks::expire(uint64_t now_ns, uint32_t tick) {
  size_t over = 0;
  {
    MutexLock lock(mutex_);
    while (over < kept_.size() && kept_[over].until_ns <= now_ns) ++over;
  }
  drop(over, tick);
  MutexLock lock(mutex_);
  awaited_ = !kept_.empty();
  return awaited_ ? kept_.front().until_ns : kNever;
}

void TakenBlocks::drop(size_t n, uint32_t tick) {
  std::array<SlotId, 64> slots;
  while (n != 0) {
    size_t some = 0;
    {
      MutexLock lock(mutex_);
      for (; some < std::min(n, slots.size()) && !kept_.empty(); ++some) {
        slots[some] = kept_.front().slot;
        kept_.pop_front();
      }
    }
    if (some == 0) return;
    table_.release(std::span(slots).first(some), tick);
    n -= some;
  }
}

}  // namespace kvbm::manager
