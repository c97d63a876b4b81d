// The disk of a shared tier set: the real tier while this process is the owner, before that an empty tier.
//
// It gets the disk at most once and keeps it, so no call can meet a disk that is being removed. Until then puts end
// as owner_gone, gets as miss, and nothing is found or pinned; a pin is always one of the disk's. Thread: any.
#pragma once

#include <atomic>
#include <memory>

#include "base/thread/executor.h"
#include "tier/tier.h"

namespace kvbm::manager {

class OwnedTier final : public tier::Tier {
 public:
  explicit OwnedTier(Executor& executor, std::string path) : executor_(executor), path_(std::move(path)) {}

  // Makes this process the owner. Called once.
  void own(std::unique_ptr<tier::Tier> disk);

  [[nodiscard]] std::string_view kind() const noexcept override { return "disk"; }
  [[nodiscard]] std::string describe() const override;
  void find(std::span<const Identity> ids, std::span<tier::Found> out, bool touch) noexcept override;
  bool pin(const Identity& id) noexcept override;
  void unpin(const Identity& id) noexcept override;
  void put(std::unique_ptr<tier::PutBatch> batch) override;
  void get(std::unique_ptr<tier::GetBatch> batch) override;
  [[nodiscard]] bool reads_from_files() const noexcept override;
  void erase(std::span<const Identity> ids) override;
  void hint(std::span<const Identity> ids, uint8_t priority) override;
  void reject(const Identity& id, uint64_t location) override;
  Status erase_family(FamilyId family) override;
  Status erase_families(std::span<const FamilyId> families) override;
  void families(FamilyTable::Named& named) override;
  void forget_families(std::span<const FamilyId> gone) override;
  size_t scan(uint64_t& cursor, std::span<tier::ScanRow> out) override;
  [[nodiscard]] tier::TierStats stats() const override;
  Result<uint64_t> epoch(const NamespaceId& base_id) override;
  Status set_epoch(const NamespaceId& base_id, uint64_t epoch) override;
  Status set_epochs(std::span<const tier::EpochRow> rows, std::span<const NamespaceId> forgotten,
                    std::span<const tier::EpochRow> floored) override;
  std::vector<tier::EpochRow> epochs() override;
  std::vector<uint64_t> epoch_floors() override;
  void sync(UniqueFunction<void(const Status&)> done) override;
  void shutdown(UniqueFunction<void()> done) override;

 private:
  [[nodiscard]] tier::Tier* disk() const noexcept { return disk_.load(std::memory_order_acquire); }

  Executor& executor_;
  const std::string path_;
  std::unique_ptr<tier::Tier> held_;
  std::atomic<tier::Tier*> disk_{nullptr};
};

}  // namespace kvbm::manager
