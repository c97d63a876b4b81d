// What each account may have of a table, in all of its pools together.
//
// Invariant: `used` is never below the slots of the account that are not reset; a slot is reserved here before it is
// taken, and given back here when it is freed. Accounts are made once and never go, so reading takes no lock.
// Budget: 512 bytes, and 1 KiB for each 64 accounts with a limit.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace kvbm::block {

// Who pays for a slot. 0 is shared and has no limit of its own.
using AccountId = uint16_t;
inline constexpr AccountId kSharedAccount = 0;
inline constexpr AccountId kMaxAccounts = 4096;
inline constexpr uint32_t kNoLimit = UINT32_MAX;

// What an allocation beyond the account's limit does: fail with over_quota, or evict the
// account's own coldest blocks (over_quota only when none of them can go).
enum class OverQuota : uint8_t { reject, evict };

struct Quota {
  std::atomic<bool> exists{false};
  std::atomic<OverQuota> mode{OverQuota::reject};
  std::atomic<uint32_t> limit{kNoLimit};
  std::atomic<uint32_t> used{0};
  bool has_policy = false;  // under the table's lock for opening: the pools have a policy of its own
};

class Quotas {
 public:
  ~Quotas() {
    for (std::atomic<Page*>& page : pages_) delete page.load(std::memory_order_relaxed);
  }

  // Null for an account that was not made, and for the shared one.
  [[nodiscard]] Quota* find(AccountId account) const noexcept {
    if (account >= kMaxAccounts) return nullptr;
    Page* const page = pages_[account / kPage].load(std::memory_order_acquire);
    if (page == nullptr) return nullptr;
    Quota& quota = (*page)[account % kPage];
    return quota.exists.load(std::memory_order_acquire) ? &quota : nullptr;
  }
  // Room for it; it is found once `exists` is set. The caller lets nobody else in.
  [[nodiscard]] Quota& make(AccountId account) {
    std::atomic<Page*>& page = pages_[account / kPage];
    if (page.load(std::memory_order_relaxed) == nullptr) page.store(new Page, std::memory_order_release);
    return (*page.load(std::memory_order_relaxed))[account % kPage];
  }
  // Beyond the object itself.
  [[nodiscard]] size_t bytes() const noexcept {
    size_t total = 0;
    for (const std::atomic<Page*>& page : pages_) total += page.load(std::memory_order_relaxed) != nullptr ? sizeof(Page) : 0;
    return total;
  }

 private:
  static constexpr size_t kPage = 64;
  using Page = std::array<Quota, kPage>;
  std::array<std::atomic<Page*>, kMaxAccounts / kPage> pages_{};
};

}  // namespace kvbm::block
