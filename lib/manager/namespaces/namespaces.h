// The namespaces of a manager: their open handles, quotas and epochs, and the ids of their families.
//
// An epoch is planned under mutex_, and written into the tiers under raising_ alone. It counts once all tiers have it.
// So no open, lookup, store or load waits for a disk's sync. Peers' reports are bounded (epoch_table.h, hear_epochs()).
// Thread: any. Lock order: lib/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/function.h"
#include "base/thread/mutex.h"
#include "block/quotas.h"
#include "cluster/link/record_source.h"
#include "manager/namespaces/accounts.h"
#include "manager/namespaces/epoch_table.h"
#include "manager/namespaces/namespace.h"
#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

class CodingTerms;

class Namespaces {
 public:
  Namespaces(TierStack& stack, std::shared_ptr<CodingTerms> coding_terms);

  Result<std::shared_ptr<Namespace>> open(NamespaceOptions options);
  Status set_quota(Namespace& ns, uint64_t bytes, block::OverQuota mode);
  // Moves the namespace to its next epoch: no lookup finds its blocks of before.
  Status invalidate(Namespace& ns);
  // Erases the blocks of the namespace at its present epoch, from all tiers.
  Status reset(Namespace& ns);

  // ---- Epochs ----
  // Sets the epoch of `base_id` to `wanted`, or to the next one if `wanted` is 0. No-op if it is there already.
  // Persisted on return.
  Status raise_epoch(const NamespaceId& base_id, uint64_t wanted);
  // Merges epochs that peers report. One task of the executor at a time writes them. `done` runs there, or inside the
  // call with Code::again for all words if kHeardWaiting calls are queued already. `may_add`: new rows allowed for
  // namespaces that no process here ever used. `trusted`: the words are from clients of this tier set, and count as
  // this process's own.
  static constexpr size_t kHeardWaiting = 256;
  void hear_epochs(std::vector<cluster::EpochWord> words, uint32_t may_add, bool trusted,
                   UniqueFunction<void(std::vector<cluster::EpochWord>)> done);
  // Merges an epoch that a tier reports. Ignores namespaces that are not open here: the tier reports the epoch when one
  // is opened.
  void epoch_raised(const NamespaceEpoch& row);
  // Merges the epochs stored in the host and all tiers, or in a tier that has come into use.
  void adopt_epochs();
  void adopt_epochs(tier::Tier& from);
  // Returns the epoch of a namespace as far as it is known here.
  Result<uint64_t> epoch_of(const NamespaceId& base_id);
  // Returns namespaces at another epoch than the one they began with, here or in an earlier process. This process's
  // own are first, and the most recently raised first. Then follow open namespaces without a row, at epoch 0, which
  // asks each peer for a later one: a peer that has dropped its row (EpochTable) reports it only when asked.
  std::vector<NamespaceEpoch> epochs();
  struct EpochRows {
    size_t all = 0, foreign = 0;
  };
  EpochRows epoch_rows();
  // Returns namespaces that have a handle, or had one a while ago.
  std::vector<NamespaceId> known();

  // ---- Families (unused_families.cc) ----
  // From now on unused ids are freed when the table of families grows.
  void watch_families();
  // Asks every owner of family ids which ids it uses, and frees those that were unused twice in a row. The caller
  // holds no lock.
  void give_back_families();

 private:
  // State that all handles of one namespace share, by base id, as long as there is a handle.
  struct Known {
    Accounts::Lease::weak_type account;  // alive while a handle is open
    std::vector<std::weak_ptr<Namespace>> handles;
  };
  enum class Speaker : uint8_t { self, client, peer };
  struct RowCensus;

  Result<uint64_t> epoch_in_tiers(const NamespaceId& base_id);
  void drop_unused() KVBM_REQUIRES(mutex_);
  std::vector<std::shared_ptr<Namespace>> live_handles(const NamespaceId& base_id) KVBM_REQUIRES(mutex_);
  uint64_t epoch_here(const NamespaceId& base_id) KVBM_REQUIRES(mutex_);
  uint64_t epoch_to_open(const NamespaceId& base_id) KVBM_REQUIRES(mutex_);
  Status raise_epochs(std::span<cluster::EpochWord> words, uint32_t may_add, Speaker speaker);
  EpochTable::Plan plan_epochs(std::span<cluster::EpochWord> words, uint32_t may_add, Speaker speaker,
                               bool& leaves_nothing) KVBM_REQUIRES(raising_) KVBM_EXCLUDES(mutex_);
  Status write_epochs(const EpochTable::Plan& plan, std::span<cluster::EpochWord> words) KVBM_REQUIRES(raising_);
  std::set<NamespaceId> commit_epochs(const EpochTable::Plan& plan) KVBM_REQUIRES(raising_) KVBM_EXCLUDES(mutex_);
  bool erase_ended(const std::set<NamespaceId>& ended);
  void plan_epoch(EpochTable::Plan& plan, cluster::EpochWord& word, uint32_t& may_add, Speaker speaker,
                  EpochTable::Needed& needed) KVBM_REQUIRES(raising_, mutex_);
  std::shared_ptr<const RowCensus> take_row_census(size_t words) KVBM_REQUIRES(raising_) KVBM_EXCLUDES(mutex_);
  EpochTable::Need need_of_row(const RowCensus& census, const NamespaceId& base) KVBM_REQUIRES(mutex_);
  void report_floor(const NamespaceId& base_id, uint64_t epoch);
  void run_heard();
  // Returns the account that has the limit now; null if the namespace needs none of its own.
  Result<Accounts::Lease> limit_account(const NamespaceId& base_id, Known& known, uint64_t bytes, block::OverQuota mode)
      KVBM_REQUIRES(mutex_);
  Status erase_families_of(const NamespaceId& id);
  // Returns true if records of an ended epoch could be found again after a restart.
  [[nodiscard]] bool epochs_end_before_records();

  TierStack& stack_;
  HostTier& host_;
  const std::shared_ptr<CodingTerms> coding_terms_;
  Mutex giving_back_;  // serializes give_back_families()
  // Held while an epoch is written into the tiers; only raises take it. Taken before mutex_.
  Mutex raising_;
  // Held over the table's limits (lib/README.md); never over I/O or a wait, never on a path of blocks.
  Mutex mutex_;
  Accounts accounts_ KVBM_GUARDED_BY(mutex_);
  std::map<NamespaceId, Known> known_ KVBM_GUARDED_BY(mutex_);
  size_t known_after_sweep_ KVBM_GUARDED_BY(mutex_) = 0;
  EpochTable epochs_ KVBM_GUARDED_BY(mutex_);  // epochs that have ended stay ended
  Mutex heard_mutex_;
  std::deque<UniqueFunction<void()>> heard_ KVBM_GUARDED_BY(heard_mutex_);  // calls to be merged
  bool hearing_ KVBM_GUARDED_BY(heard_mutex_) = false;                      // a task is running
};

}  // namespace kvbm::manager
