// Who has which account of the block table: a namespace with a quota has one of its own while it is open.
//
// A closed namespace's blocks stay, charged to its account. The account goes back to the same namespace when that is
// opened again, so that its quota counts what it left, and to another one when none of its blocks are left.
// Bounded by block::kMaxAccounts. Thread: any; the lock is held over a look at the block table.
#pragma once

#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"
#include "block/quotas.h"

namespace kvbm::block {
class BlockTable;
}

namespace kvbm::manager {

class Accounts : public std::enable_shared_from_this<Accounts> {
 public:
  // Has an account until it goes; the default one has the shared account.
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

  // An account for the namespace of this base id. at_limit: every account is open or still has blocks.
  Result<Lease> lease(const NamespaceId& base_id, const block::BlockTable& table) KVBM_EXCLUDES(mutex_);

 private:
  struct Account {
    bool open = false;
    NamespaceId base_id;  // who has it, or had it last
  };
  void give_back(block::AccountId id) KVBM_EXCLUDES(mutex_);
  [[nodiscard]] block::AccountId choose(const NamespaceId& base_id, const block::BlockTable& table)
      KVBM_REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<Account> accounts_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager
