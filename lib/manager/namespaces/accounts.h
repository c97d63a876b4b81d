// Quota groups (accounts) of the block table: an open namespace with a quota has an account of its own.
//
// Blocks of a closed namespace stay in the host and are charged to its account. Reopening the namespace returns the
// same account to it, so its quota counts those blocks. Another namespace gets the account once none of them are
// left. Bounded by block::kMaxAccounts. Thread: any; the lock is held while the block table is read.
#pragma once

#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/thread/mutex.h"
#include "block/quotas.h"

namespace kvbm::block {
class BlockTable;
}

namespace kvbm::manager {

class Accounts : public std::enable_shared_from_this<Accounts> {
 public:
  // Owns an account for its lifetime. A default-constructed lease has the shared account.
  class Lease {
   public:
    Lease() = default;
    Lease(std::shared_ptr<Accounts> from, block::AccountId id) : from_(std::move(from)), id_(id) {}
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (from_ != nullptr) from_->give_back(id_);
    }
    [[nodiscard]] block::AccountId id() const noexcept { return id_; }

   private:
    std::shared_ptr<Accounts> from_;
    block::AccountId id_ = block::kSharedAccount;
  };

  Accounts() : accounts_(1, Account{true, {}}) {}  // the shared account is never free

  // Leases an account for the namespace with this base id. at_limit: every account is open or still has blocks.
  Result<Lease> lease(const NamespaceId& base_id, const block::BlockTable& table) KVBM_EXCLUDES(mutex_);

 private:
  struct Account {
    bool open = false;
    NamespaceId base_id;  // its present owner, or the last one
  };
  void give_back(block::AccountId id) KVBM_EXCLUDES(mutex_);
  [[nodiscard]] block::AccountId choose(const NamespaceId& base_id, const block::BlockTable& table)
      KVBM_REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<Account> accounts_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager
