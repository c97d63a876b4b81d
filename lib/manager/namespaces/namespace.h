// A namespace as one manager knows it: its id at the current epoch, its account, its families.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/family/family_table.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/thread/mutex.h"
#include "block/quotas.h"
#include "codec/coded/recipe.h"
#include "codec/record/key.h"
#include "layout/geometry.h"
#include "layout/record_shape.h"
#include "manager/namespaces/accounts.h"
#include "manager/namespaces/other_sizes.h"

namespace kvbm::manager {

// Part of the model that a call refers to, as the caller gives it: an all-zero shard is the whole model.
struct Part {
  Component component = 0;
  Shard shard;
  auto operator<=>(const Part&) const = default;
};

struct NamespaceOptions {
  std::string tenant;
  std::string model;
  std::string adapter;
  std::shared_ptr<const layout::Geometry> geometry;  // null: opaque
  codec::Secret secret{};
  uint64_t epoch = 0;
  uint64_t quota_bytes = 0;
  block::OverQuota quota_mode = block::OverQuota::evict;
  std::optional<codec::Recipe> codec;  // coding of its records below the host, if any
  bool allow_lossy = false;            // its readers accept lossy records
};

// A resolved part: its family, and the shape of its records (absent for opaque ones).
struct PartPlan {
  FamilyId family = 0;
  Part part;
  std::optional<layout::RecordShape> shape;  // none: opaque
  layout::ComponentKind kind = layout::ComponentKind::attention;
  uint32_t window_blocks = 0;  // sliding window: number of stored blocks that the window reaches
};

class CodingTerms;

class Namespace {
 public:
  Namespace(NamespaceOptions options, FamilyTable& families, Accounts::Lease account, uint64_t epoch,
            std::shared_ptr<CodingTerms> coding = nullptr);

  // Returns the base id of a namespace with these options.
  [[nodiscard]] static NamespaceId base_id_of(const NamespaceOptions& options) { return derive(options, 0); }

  // Returns the base id without geometry and epoch: equal exactly where KV of one geometry means the same.
  [[nodiscard]] static NamespaceId model_id_of(const NamespaceOptions& options);

  // Returns the id at the current epoch. Thread: any.
  [[nodiscard]] NamespaceId id() const;
  // Returns the id that epochs are persisted under: it is the same at every epoch.
  [[nodiscard]] NamespaceId base_id() const noexcept { return base_id_; }
  [[nodiscard]] uint64_t epoch() const;
  // Returns the epoch given when this handle was opened; it concerns this handle only.
  [[nodiscard]] uint64_t named_epoch() const noexcept { return options_.epoch; }
  // Returns the account that stores are charged to: the namespace's own while it has a quota. Thread: any.
  [[nodiscard]] block::AccountId account() const noexcept { return account_.load(std::memory_order_relaxed); }
  void set_account(Accounts::Lease lease);
  [[nodiscard]] const NamespaceOptions& options() const noexcept { return options_; }
  // Resolves a part. invalid_argument if the geometry has no such component or shard. Thread: any; one short lock.
  // The caller holds no lock when a part gets its first family at an epoch: the table may then look for ids to
  // recycle.
  Result<PartPlan> plan(const Part& part);
  // Returns the family of component 0 of the whole model; cached, no lock after the first call.
  Result<FamilyId> default_family();
  // Returns the sizes in which ranks of another tensor-parallel size may have stored records of the part: those with
  // a family in the table. Null: there are none. Thread: any; a map and a lock while the table does not change.
  std::shared_ptr<const OtherSizes> other_sizes(const PartPlan& plan);
  // Returns every possible size, and adds its families to the table while that has space: for lookups that ask other
  // nodes.
  OtherSizes all_other_sizes(const PartPlan& plan);
  // Time until which no tier is asked about other sizes again. UINT64_MAX in `until`: some were found, and are always
  // asked for (ask_other_sizes.h).
  [[nodiscard]] bool are_other_sizes_quiet(uint64_t now_ns) const noexcept {
    const uint64_t until = quiet_until_ns_.load(std::memory_order_relaxed);
    return until != UINT64_MAX && now_ns < until;
  }
  void quiet_other_sizes(uint64_t until) noexcept {
    if (quiet_until_ns_.load(std::memory_order_relaxed) != UINT64_MAX)
      quiet_until_ns_.store(until, std::memory_order_relaxed);
  }
  // Moves to `epoch`; plans made before keep the id of the old epoch.
  void advance(uint64_t epoch);
  // Adds the families that calls on this handle get at this epoch.
  void add_to(FamilyTable::Named& named) const;

 private:
  [[nodiscard]] static NamespaceId derive(const NamespaceOptions& options, uint64_t epoch);
  // Returns a part's plan and family, without the family's id. `model_layers` counts the whole model.
  Result<PartPlan> shape_of(const Part& part, Family& family, uint32_t& model_layers) const;

  const NamespaceOptions options_;
  FamilyTable& table_;
  const std::shared_ptr<CodingTerms> coding_;
  std::shared_ptr<const void> coding_handle_;
  std::atomic<block::AccountId> account_{block::kSharedAccount};
  const NamespaceId base_id_;
  std::atomic<uint64_t> quiet_until_ns_{0};
  std::atomic<FamilyId> default_family_{kNoFamily};
  mutable Mutex mutex_;
  NamespaceId id_ KVBM_GUARDED_BY(mutex_);
  uint64_t epoch_ KVBM_GUARDED_BY(mutex_) = 0;
  Accounts::Lease lease_ KVBM_GUARDED_BY(mutex_);  // null: the shared account
  std::map<Part, PartPlan> plans_ KVBM_GUARDED_BY(mutex_);
  // Result of other_sizes(), and the table's change count at that time.
  struct Others {
    FamilyId family = kNoFamily;
    uint64_t changes = 0;                         // FamilyTable::changes()
    std::vector<std::shared_ptr<OtherSize>> all;  // without ids
    std::shared_ptr<const OtherSizes> known;
  };
  OtherSizes with_ids(const std::vector<std::shared_ptr<OtherSize>>& all, bool intern);
  std::vector<std::shared_ptr<OtherSize>> all_sizes(const PartPlan& plan);
  std::map<Part, Others> others_ KVBM_GUARDED_BY(mutex_);  // of parts in plans_
};

}  // namespace kvbm::manager
