// Quotas: limits of accounts on the slots of a table, over all of its pools.
//
// Invariant: `used` is never below the account's number of slots that are not reset. A slot is reserved here before it
// is taken, and released here when it is freed. Accounts are never removed, so reading takes no lock.
// Budget: 512 bytes, and 1 KiB for each 64 accounts with a limit.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace kvbm::block {

// The account that a slot is charged to. 0 is shared and has no limit of its own.
using AccountId = uint16_t;
inline constexpr AccountId kSharedAccount = 0;
inline constexpr AccountId kMaxAccounts = 4096;
inline constexpr uint32_t kNoLimit = UINT32_MAX;

// Handling of an allocation beyond the account's limit: fail with over_quota, or evict the account's own coldest blocks
// (over_quota only when none of them can be evicted).
enum class OverQuota : uint8_t { reject, evict };

struct Quota {
  std::atomic<bool> exists{false};
  std::atomic<OverQuota> mode{OverQuota::reject};
  std::atomic<uint32_t> limit{kNoLimit};
  std::atomic<uint32_t> used{0};
  bool has_policy = false;  // the pools have a policy for it; used by BlockTable::set_limit() only
};

class Quotas {
 public:
  ~Quotas() {
    for (std::atomic<Page*>& page : pages_) delete page.load(std::memory_order_relaxed);
  }

  // Returns null for the shared account, and for accounts that were not made.
  [[nodiscard]] Quota* find(AccountId account) const noexcept {
    if (account >= kMaxAccounts) return nullptr;
    Page* const page = pages_[account / kPage].load(std::memory_order_acquire);
    if (page == nullptr) return nullptr;
    Quota& quota = (*page)[account % kPage];
    return quota.exists.load(std::memory_order_acquire) ? &quota : nullptr;
  }
  // Makes memory for the account; it is found once `exists` is set. The caller serialises calls.
  [[nodiscard]] Quota& make(AccountId account) {
    std::atomic<Page*>& page = pages_[account / kPage];
    if (page.load(std::memory_order_relaxed) == nullptr) page.store(new Page, std::memory_order_release);
    return (*page.load(std::memory_order_relaxed))[account % kPage];
  }
  // Bytes beyond the object itself.
  [[nodiscard]] size_t bytes() const noexcept {
    size_t total = 0;
    for (const std::atomic<Page*>& page : pages_)
      total += page.load(std::memory_order_relaxed) != nullptr ? sizeof(Page) : 0;
    return total;
  }

 private:
  static constexpr size_t kPage = 64;
  using Page = std::array<Quota, kPage>;
  std::array<std::atomic<Page*>, kMaxAccounts / kPage> pages_{};
};

}  // namespace kvbm::block
