#include "manager/host/received_blocks.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/thread/memory_wait.h"

namespace kvbm::manager {

namespace {
constexpr size_t kMostEnds = 64;
constexpr size_t kReleased = 64;  // slots released with one call
}  // namespace

ReceivedBlocks::ReceivedBlocks(block::BlockTable& table, ParentKey parent_key)
    : table_(table),
      parent_key_(std::move(parent_key)),
      most_(std::max<size_t>(table.slots() / 2, 1)),
      most_ends_(std::clamp<size_t>(most_ / 2, 1, kMostEnds)),
      given_(std::make_unique<std::atomic<uint32_t>[]>(table.slots())) {}

bool ReceivedBlocks::keep(std::span<const SlotId> slots, uint64_t now_ns, uint32_t tick) {
  if (slots.empty()) return false;
  const MemoryWait no_error_path;
  MutexLock lock(mutex_);
  const bool first = !std::exchange(awaited_, true);
  for (const SlotId slot : slots) kept_.push_back({slot, now_ns + kKeptNs});
  trim(tick);
  return first;
}

void ReceivedBlocks::trim(uint32_t tick) {
  std::array<SlotId, kReleased> gone;
  size_t n = 0;
  const auto release = [&](SlotId slot) {
    gone[n++] = slot;
    if (n < gone.size()) return;
    table_.release(gone, tick);
    n = 0;
  };
  while (!kept_.empty() && kept_.size() + ends_.size() > most_) {
    Kept oldest = kept_.front();
    kept_.pop_front();
    oldest.apart = !join(oldest.slot, tick);
    if (!oldest.apart && table_.is_followed(oldest.slot)) {
      release(oldest.slot);
      continue;
    }
    ends_.push_back(oldest);
    if (ends_.size() <= most_ends_) continue;
    const Kept end = take_end();
    (void)join(end.slot, tick);
    release(end.slot);
  }
  table_.release(std::span(gone).first(n), tick);
}

// Takes the oldest block that has children by now. Else the oldest without its parent here: the beginning of a put
// stays longer than blocks of it that landed before their parents. Else the oldest.
ReceivedBlocks::Kept ReceivedBlocks::take_end() {
  auto which = std::find_if(ends_.begin(), ends_.end(),
                            [this](const Kept& end) { return !end.apart && table_.is_followed(end.slot); });
  if (which == ends_.end()) which = std::find_if(ends_.begin(), ends_.end(), [](const Kept& end) { return end.apart; });
  if (which == ends_.end()) which = ends_.begin();
  const Kept end = *which;
  ends_.erase(which);
  return end;
}

bool ReceivedBlocks::join(SlotId slot, uint32_t tick) {
  if (table_.parent(slot) != kNoSlot) return true;
  const Key key = parent_key_(slot);
  if (key == Key{}) return true;
  SlotId parent = kNoSlot;
  table_.acquire_each(table_.identity(slot).family, {&key, 1}, {&parent, 1}, block::kNoUse);
  if (parent == kNoSlot) return false;
  (void)table_.adopt(slot, parent);
  table_.release({&parent, 1}, tick);
  return true;
}

void ReceivedBlocks::given(std::span<const SlotId> slots) noexcept {
  for (const SlotId slot : slots) given_[slot].store(table_.generation(slot) + 1, std::memory_order_relaxed);
  if (!slots.empty()) any_given_.store(true, std::memory_order_release);  // pairs with evicted()
}

void ReceivedBlocks::evicted(std::span<const block::Evicted> gone, uint8_t own) noexcept {
  if (!any_given_.load(std::memory_order_acquire)) return;  // pairs with given()
  const auto lost = std::count_if(gone.begin(), gone.end(), [this, own](const block::Evicted& one) {
    return (one.flags & own) == 0 && given_[one.slot].load(std::memory_order_relaxed) == one.generation + 1;
  });
  lost_.fetch_add(static_cast<uint64_t>(lost), std::memory_order_relaxed);
}

bool ReceivedBlocks::release_some(uint64_t seen, uint32_t tick) {
  // A share, so that many blocks do not take too many rounds.
  constexpr size_t kShare = 32;
  MutexLock lock(mutex_);
  if (releases() != seen) return true;
  const size_t all = ends_.size() + kept_.size();
  const size_t n = std::min(all, std::max<size_t>(all / kShare, 1));
  drop(n, tick);
  releases_.fetch_add(1, std::memory_order_release);  // pairs with releases()
  return n != 0;
}

void ReceivedBlocks::let_go_of(FamilyId family, uint32_t tick) {
  const MemoryWait no_error_path;
  std::vector<SlotId> gone;
  MutexLock lock(mutex_);
  for (std::deque<Kept>* some : {&ends_, &kept_}) {
    std::erase_if(*some, [&](const Kept& one) {
      const bool goes = table_.identity(one.slot).family == family;
      if (goes) gone.push_back(one.slot);
      return goes;
    });
  }
  table_.release(gone, tick);
}

uint64_t ReceivedBlocks::expire(uint64_t now_ns, uint32_t tick) {
  size_t over = 0;
  MutexLock lock(mutex_);
  for (const std::deque<Kept>* some : {&ends_, &kept_}) {
    over += static_cast<size_t>(
        std::find_if(some->begin(), some->end(), [now_ns](const Kept& one) { return one.until_ns > now_ns; }) -
        some->begin());
  }
  drop(over, tick);
  uint64_t next = kNever;
  if (!ends_.empty()) next = ends_.front().until_ns;
  if (!kept_.empty()) next = std::min(next, kept_.front().until_ns);
  awaited_ = next != kNever;
  return next;
}

void ReceivedBlocks::drop(size_t n, uint32_t tick) {
  std::array<SlotId, kReleased> slots;
  while (n != 0) {
    size_t some = 0;
    for (; some < std::min(n, slots.size()) && !(ends_.empty() && kept_.empty()); ++some) {
      std::deque<Kept>& oldest = ends_.empty() ? kept_ : ends_;
      slots[some] = oldest.front().slot;
      oldest.pop_front();
    }
    if (some == 0) return;
    for (const SlotId slot : std::span(slots).first(some)) (void)join(slot, tick);
    table_.release(std::span(slots).first(some), tick);
    n -= some;
  }
}

}  // namespace kvbm::manager
