// A namespace as one manager knows it: its id at the current epoch, its account, its families.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/family_table.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/status.h"
#include "block/quotas.h"
#include "codec/key.h"
#include "codec/recipe.h"
#include "layout/geometry.h"
#include "layout/record_shape.h"
#include "manager/accounts.h"
#include "manager/other_sizes.h"

namespace kvbm::manager {

// A part of the model that a call means, as the caller says it: an all-zero shard is the whole model.
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
  std::optional<codec::Recipe> codec;  // how its records are coded below the host, where anything is
  bool allow_lossy = false;            // its readers take lossy records
};

// A part resolved: its family, and how its records are cut (absent for opaque ones).
struct PartPlan {
  FamilyId family = 0;
  Part part;
  std::optional<layout::RecordShape> shape;  // none: opaque
  layout::ComponentKind kind = layout::ComponentKind::attention;
  uint32_t window_blocks = 0;  // sliding window: stored blocks that the window reaches
};

class CodingTerms;

class Namespace {
 public:
  Namespace(NamespaceOptions options, FamilyTable& families, std::shared_ptr<const Accounts::Lease> account,
            uint64_t epoch, std::shared_ptr<CodingTerms> coding = nullptr);

  // The base id that a namespace of these options has.
  [[nodiscard]] static NamespaceId base_id_of(const NamespaceOptions& options) { return derive(options, 0); }

  // The same without geometry and epoch: equal exactly where KV of one geometry means the same.
  [[nodiscard]] static NamespaceId model_id_of(const NamespaceOptions& options);

  // The id at the current epoch. Thread: any.
  [[nodiscard]] NamespaceId id() const;
  // The id that epochs are persisted under: it does not change with them.
  [[nodiscard]] NamespaceId base_id() const noexcept { return base_id_; }
  [[nodiscard]] uint64_t epoch() const;
  // The epoch that its opener named; it is this handle's own business.
  [[nodiscard]] uint64_t named_epoch() const noexcept { return options_.epoch; }
  // The account that stores are charged to: its own while it has a quota. Thread: any.
  [[nodiscard]] block::AccountId account() const noexcept { return account_.load(std::memory_order_relaxed); }
  void set_account(std::shared_ptr<const Accounts::Lease> lease);
  [[nodiscard]] const NamespaceOptions& options() const noexcept { return options_; }
  // invalid_argument when the geometry has no such component or shard. Thread: any; one short lock, and before a part's first
  // family at an epoch none: the table may look for families to give back.
  Result<PartPlan> plan(const Part& part);
  // Component 0, whole model: cached, no lock after the first call.
  Result<FamilyId> default_family();
  // Where records of the part may lie that ranks of another tensor-parallel size stored: sizes of which some family is in the
  // table. Null: there are none. Thread: any; a map and a lock as long as the table does not change.
  std::shared_ptr<const OtherSizes> other_sizes(const PartPlan& plan);
  // The same of every size there may be, whose families come into the table as long as it has room: for lookups that ask other nodes.
  OtherSizes all_other_sizes(const PartPlan& plan);
  // Until when no tier is asked about them again; UINT64_MAX in `until`: they were found, and are asked for from now on
  // (ask_other_sizes.h).
  [[nodiscard]] bool are_other_sizes_quiet(uint64_t now_ns) const noexcept {
    const uint64_t until = quiet_until_ns_.load(std::memory_order_relaxed);
    return until != UINT64_MAX && now_ns < until;
  }
  void quiet_other_sizes(uint64_t until) noexcept {
    if (quiet_until_ns_.load(std::memory_order_relaxed) != UINT64_MAX) quiet_until_ns_.store(until, std::memory_order_relaxed);
  }
  // Moves to `epoch`; plans made before are of the id before.
  void advance(uint64_t epoch);
  // The families that calls on this handle get at this epoch.
  void add_to(FamilyTable::Named& named) const;

 private:
  [[nodiscard]] static NamespaceId derive(const NamespaceOptions& options, uint64_t epoch);
  // A part's plan and family, without the family's id. Layers: of the whole model.
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
  std::shared_ptr<const Accounts::Lease> lease_ KVBM_GUARDED_BY(mutex_);  // null: the shared account
  std::map<Part, PartPlan> plans_ KVBM_GUARDED_BY(mutex_);
  // What other_sizes() found, and when.
  struct Others {
    FamilyId family = kNoFamily;
    uint64_t changes = 0;  // FamilyTable::changes()
    std::vector<std::shared_ptr<OtherSize>> all;  // without ids
    std::shared_ptr<const OtherSizes> known;
  };
  OtherSizes with_ids(const std::vector<std::shared_ptr<OtherSize>>& all, bool intern);
  std::vector<std::shared_ptr<OtherSize>> all_sizes(const PartPlan& plan);
  std::map<Part, Others> others_ KVBM_GUARDED_BY(mutex_);  // of parts in plans_
};

}  // namespace kvbm::manager
