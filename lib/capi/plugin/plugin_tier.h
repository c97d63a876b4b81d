// A tier made of a caller's C table (kvbm_tier_table_t), isolated from its faults.
//
// The table's functions run on threads of this tier's own, never on the core's. Everything they touch is memory of
// this object that lives until they return. A call that hangs past its deadline costs its items a deadline and one
// thread, and its late answer is dropped. With all threads lost that way calls are refused at once. Records are
// copied out of the plug-in's reach and checked there (identity, root hash, every leaf) before they are delivered. A
// record that fails is damaged: it is counted, reported to the listener, and not found here again until it is stored
// anew. A second answer to a call writes into memory that is kept for it (the last calls', up to 8 MiB) and is
// counted. After kMaxFaults faults the tier is disabled.
#pragma once

#include <memory>

#include "base/family/family_table.h"
#include "base/thread/thread_executor.h"
#include "kvbm.h"
#include "manager/common/options.h"
#include "tier/tier.h"

namespace kvbm::capi {

// Returns the maker of tiers over the table. `executor` as in PluginTier::create.
manager::MakeTier plugin_tier(const kvbm_tier_table_t& table, void* user, Executor& executor);

class PluginCore;

class PluginTier final : public tier::Tier {
 public:
  // `executor` is the core's: completions run there. unsupported if the table lacks a function.
  static Result<std::unique_ptr<PluginTier>> create(const kvbm_tier_table_t& table, void* user, Executor& executor,
                                                    const FamilyTable& families, TierIndex index,
                                                    tier::TierListener* listener);
  ~PluginTier() override;

  [[nodiscard]] std::string_view kind() const noexcept override { return "plugin"; }
  [[nodiscard]] std::string describe() const override;
  void find(std::span<const Identity> ids, std::span<tier::Found> out, bool touch) noexcept override;
  bool pin(const Identity& id) noexcept override;
  void unpin(const Identity& id) noexcept override;
  void put(std::unique_ptr<tier::PutBatch> batch) override;
  void get(std::unique_ptr<tier::GetBatch> batch) override;
  void erase(std::span<const Identity> ids) override;
  void reject(const Identity& id, uint64_t location) override;
  Status erase_family(FamilyId family) override;
  size_t scan(uint64_t& cursor, std::span<tier::ScanRow> out) override;
  [[nodiscard]] tier::TierStats stats() const override;
  Result<uint64_t> epoch(const NamespaceId& base_id) override;
  Status set_epoch(const NamespaceId& base_id, uint64_t epoch) override;
  [[nodiscard]] bool keeps_epochs() const noexcept override { return false; }
  void shutdown(UniqueFunction<void()> done) override;

 private:
  PluginTier(std::shared_ptr<PluginCore> core, std::unique_ptr<ThreadExecutor> threads)
      : core_(std::move(core)), threads_(std::move(threads)) {}
  std::shared_ptr<PluginCore> core_;
  std::unique_ptr<ThreadExecutor> threads_;
};

}  // namespace kvbm::capi
