#include "manager/host/space_queue.h"

#include <algorithm>
#include <bitset>
#include <string>
#include <utility>
#include <vector>

#include "base/thread/memory_wait.h"
#include "block/block_table.h"
#include "manager/common/counters.h"
#include "manager/common/environment.h"
#include "manager/common/lifetime.h"

namespace kvbm::manager {

namespace {
constexpr uint64_t kLogEveryNs = 10'000'000'000;  // at most one line in that time
}  // namespace

void SpaceQueue::close() noexcept {
  closing_.store(true, std::memory_order_release);
  space_released();  // wakes the waiters, which then see that the manager is closing
}

bool SpaceQueue::has_before(uint64_t place, block::AccountId account) const {
  for (auto at = queue_.begin(); at != queue_.end() && at->first < place; ++at) {
    if (at->second.whole_host || at->second.account == account) return true;
  }
  return false;
}

SpaceQueue::Entry& SpaceQueue::enqueue(const std::shared_ptr<SpaceWaiter>& waiter, uint64_t place,
                                       block::AccountId account) {
  const auto [at, came] = queue_.try_emplace(place);
  if (came) {
    at->second.waiter = waiter;
    at->second.account = account;
    at->second.since_ns = env_.clock().now_ns();
    waiting_.fetch_add(1, std::memory_order_seq_cst);  // pairs with space_released()
    if ((place & kStores) == 0) prefetches_.fetch_add(1, std::memory_order_relaxed);
  }
  return at->second;
}

SpaceQueue::Verdict SpaceQueue::ask(const std::shared_ptr<SpaceWaiter>& waiter, uint64_t place,
                                    block::AccountId account, bool holds) {
  if (waiting_.load(std::memory_order_seq_cst) == 0) return Verdict::try_it;
  {
    MutexLock lock(mutex_);
    const auto at = queue_.find(place);
    if (at != queue_.end() && at->second.ends) return Verdict::try_it;  // one more try before it is refused
    if (!has_before(place, account)) return Verdict::try_it;
    enqueue(waiter, place, account).holds = holds;
  }
  arm();
  return Verdict::wait;
}

SpaceQueue::Verdict SpaceQueue::refused(const std::shared_ptr<SpaceWaiter>& waiter, uint64_t place,
                                        block::AccountId account, bool holds, Code code, bool offloading) {
  std::shared_ptr<SpaceWaiter> other;
  Verdict verdict = Verdict::wait;
  {
    MutexLock lock(mutex_);
    const bool came = queue_.find(place) == queue_.end();
    Entry& one = enqueue(waiter, place, account);
    one.whole_host = code == Code::no_room;
    one.holds = holds;
    if (came) {
      verdict = Verdict::try_it;
    } else if (one.ends && something_moves(offloading)) {
      // Since this waiter was chosen, another has got a slot, or an operation has begun that will release some.
      one.ends = false;
    } else if (one.ends || !may_expect(one, offloading, &other)) {
      verdict = Verdict::refused;
    }
  }
  if (other != nullptr) other->space_may_be_free();
  arm();
  return verdict;
}

bool SpaceQueue::something_moves(bool offloading) const {
  return offloading || get(counters_.operations) > queue_.size();
}

bool SpaceQueue::may_expect(const Entry& one, bool offloading, std::shared_ptr<SpaceWaiter>* other) {
  const uint64_t now = env_.clock().now_ns();
  if (closing() || now - std::max(moved_ns_, one.since_ns) >= room_wait_ns_) return false;
  if (something_moves(offloading)) return true;
  for (auto at = queue_.rbegin(); at != queue_.rend(); ++at) {
    Entry& last = at->second;
    if (last.ends) return true;
    if (&last == &one || !last.holds || (!one.whole_host && last.account != one.account)) continue;
    last.ends = true;
    *other = last.waiter;
    return true;
  }
  return false;
}

bool SpaceQueue::may_wait_after(Code code, block::AccountId account) const {
  if (code != Code::over_quota) return code == Code::no_room;
  return table_.account_use(account).mode == block::OverQuota::evict;
}

void SpaceQueue::leave(uint64_t place, bool got_some) noexcept {
  if (waiting_.load(std::memory_order_relaxed) == 0) return;  // a queued caller counts itself
  Queue::node_type gone;
  {
    MutexLock lock(mutex_);
    gone = queue_.extract(place);
    if (gone.empty()) return;
    if (got_some) moved_ns_ = env_.clock().now_ns();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    if ((place & kStores) == 0) prefetches_.fetch_sub(1, std::memory_order_relaxed);
    if (queue_.empty()) return;
  }
  look_soon();
}

// ---- Notification ----

// Combines many releases into one look.
void SpaceQueue::look_soon() noexcept {
  if (looks_soon_.exchange(true, std::memory_order_acq_rel)) return;
  const MemoryWait no_error_path;
  env_.executor->post([this, weak = lifetime_.watch()] {
    if (const auto alive = weak.lock()) look();
  });
}

// Wakes the waiters that have no other waiter before them.
void SpaceQueue::look() noexcept {
  const MemoryWait no_error_path;
  looks_soon_.exchange(false, std::memory_order_acq_rel);  // a release after this starts a new look
  std::vector<std::shared_ptr<SpaceWaiter>> next;
  {
    MutexLock lock(mutex_);
    std::bitset<block::kMaxAccounts> before;
    for (const auto& [place, one] : queue_) {
      if (!before[one.account]) next.push_back(one.waiter);
      if (one.whole_host) break;
      before[one.account] = true;
    }
  }
  for (const auto& waiter : next) waiter->space_may_be_free();
}

void SpaceQueue::arm() noexcept {
  {
    MutexLock lock(mutex_);
    if (armed_ || queue_.empty()) return;
    armed_ = true;
  }
  const MemoryWait no_error_path;
  env_.executor->post_at(env_.clock().now_ns() + kLookNs, [this, weak = lifetime_.watch()] {
    if (const auto alive = weak.lock()) look_again();
  });
}

void SpaceQueue::look_again() noexcept {
  {
    MutexLock lock(mutex_);
    armed_ = false;
  }
  look();
  arm();
}

void SpaceQueue::log_refused(std::string_view refused, Code code, uint64_t waited_ns, uint64_t offloading) noexcept {
  const Log& log = *env_.log;
  if (code != Code::no_room || !log.wants(LogLevel::warning)) return;
  const uint64_t now = env_.clock().now_ns();
  uint64_t logged = logged_ns_.load(std::memory_order_relaxed);
  if (logged != 0 && now - logged < kLogEveryNs) return;
  if (!logged_ns_.compare_exchange_strong(logged, now, std::memory_order_relaxed)) return;
  const MemoryWait no_error_path;
  constexpr size_t kPage = 256;
  uint64_t held = 0, pinned = 0, filled = 0, parents = 0;
  std::vector<block::SlotInfo> page;
  for (SlotId next = 0; next < table_.slots();) {
    page.clear();
    next = table_.scan(next, page, kPage);
    for (const block::SlotInfo& info : page) {
      if (info.state != block::SlotState::registered) {
        ++filled;
      } else if (info.pins != 0) {
        ++pinned;
      } else if (info.references != 0) {
        ++held;
      } else if (info.children != 0) {
        ++parents;
      }
    }
  }
  const auto number = [](uint64_t n) { return std::to_string(n); };
  std::string text(refused);
  text += " found no room";
  if (waited_ns != 0) text += " after it waited " + number(waited_ns / 1'000'000) + " ms";
  text += ": of " + number(table_.slots()) + " host blocks " + number(held) +
          " are held by matches, block handles or operations (" + number(offloading) + " of them by offloads), " +
          number(pinned) + " pinned, " + number(filled) + " being filled, " + number(parents) +
          " kept for the blocks that follow them; release what is held, or raise host.capacity";
  log.write(LogLevel::warning, "manager", text);
}

}  // namespace kvbm::manager
