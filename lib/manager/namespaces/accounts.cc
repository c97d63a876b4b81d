#include "manager/namespaces/accounts.h"

#include "block/block_table.h"

namespace kvbm::manager {

Result<Accounts::Lease> Accounts::lease(const NamespaceId& base_id, const block::BlockTable& table) {
  MutexLock lock(mutex_);
  const block::AccountId id = choose(base_id, table);
  if (id == block::kMaxAccounts) return Status(Code::at_limit, "4,095 namespaces have quotas and are open or have blocks here");
  if (id == accounts_.size()) accounts_.emplace_back();
  accounts_[id] = {true, base_id};
  return Lease(shared_from_this(), id);
}

block::AccountId Accounts::choose(const NamespaceId& base_id, const block::BlockTable& table) {
  for (size_t id = 0; id < accounts_.size(); ++id) {
    if (!accounts_[id].open && accounts_[id].base_id == base_id) return static_cast<block::AccountId>(id);
  }
  for (size_t id = 0; id < accounts_.size(); ++id) {
    const auto account = static_cast<block::AccountId>(id);
    if (!accounts_[id].open && table.account_use(account).used == 0) return account;
  }
  return static_cast<block::AccountId>(accounts_.size());
}

void Accounts::give_back(block::AccountId id) {
  MutexLock lock(mutex_);
  accounts_[id].open = false;
}

}  // namespace kvbm::manager
