#include "manager/namespaces/accounts.h"

#include "block/block_table.h"

namespace kvbm::manager {

Result<Accounts::Lease> Accounts::lease(const NamespaceId& base_id, const block::BlockTable& table) {
  const block::AccountId id = choose(base_id, table);
  if (id == block::kMaxAccounts)
    return Status(Code::at_limit, "4,095 namespaces have quotas and are open or have blocks here");
  if (id == accounts_.size()) accounts_.emplace_back();
  Lease made = std::make_shared<const block::AccountId>(id);
  accounts_[id] = {made, base_id};
  return made;
}

block::AccountId Accounts::choose(const NamespaceId& base_id, const block::BlockTable& table) const {
  for (size_t id = 1; id < accounts_.size(); ++id) {
    if (accounts_[id].lease.expired() && accounts_[id].base_id == base_id) return static_cast<block::AccountId>(id);
  }
  for (size_t id = 1; id < accounts_.size(); ++id) {
    const auto account = static_cast<block::AccountId>(id);
    if (accounts_[id].lease.expired() && table.account_use(account).used == 0) return account;
  }
  return static_cast<block::AccountId>(accounts_.size());
}

}  // namespace kvbm::manager
