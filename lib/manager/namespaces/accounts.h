// Quota groups (accounts) of the block table: an open namespace with a quota has an account of its own.
//
// Blocks of a closed namespace stay in the host and are charged to its account. Reopening the namespace returns the
// same account to it, so its quota counts those blocks. Another namespace gets the account once none of them are
// left. Bounded by block::kMaxAccounts. Thread: one at a time; leases end on any.
#pragma once

#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "block/quotas.h"

namespace kvbm::block {
class BlockTable;
}

namespace kvbm::manager {

class Accounts {
 public:
  // The number of an account, which is open for as long as this lives.
  using Lease = std::shared_ptr<const block::AccountId>;

  // Leases an account for the namespace with this base id. at_limit: every account is open or still has blocks.
  Result<Lease> lease(const NamespaceId& base_id, const block::BlockTable& table);

 private:
  struct Account {
    Lease::weak_type lease;  // the present one, or the last one
    NamespaceId base_id;     // namespace of that lease
  };
  [[nodiscard]] block::AccountId choose(const NamespaceId& base_id, const block::BlockTable& table) const;

  std::vector<Account> accounts_ = std::vector<Account>(1);  // by number; the shared account is not leased
};

}  // namespace kvbm::manager
