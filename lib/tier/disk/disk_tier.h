// The disk tier: a log of records in a few large preallocated files (README.md has the format and
// the recovery argument). Owns its directory exclusively; usable after kill -9 or a power cut with
// no clean shutdown. The host process survives whatever the disk does: errors are statuses, and a
// disk that keeps failing is disabled.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/crypto/random.h"
#include "base/family/family_table.h"
#include "base/io/file.h"
#include "base/thread/executor.h"
#include "tier/tier.h"

namespace kvbm::tier::disk {

struct DiskTierOptions {
  std::string path;
  // Hard bound on the bytes of all files of the directory.
  uint64_t capacity_bytes = 0;
  // 0: see default_segment_bytes. Multiple of 4 KiB, at least 64 KiB. An existing directory keeps its own.
  uint64_t segment_bytes = 0;
  // Bound on the memory of the index; new records are refused beyond it.
  uint64_t index_bytes = uint64_t{4} << 30;
  // Bytes of reads and of writes in flight. While loads are running, or were a moment ago, a single write of 256 KiB is
  // in flight, so that no load waits for more. The next write waits for the load, 2 ms at most.
  uint64_t read_budget_bytes = uint64_t{64} << 20;
  uint64_t write_budget_bytes = uint64_t{16} << 20;
  // Caps in bytes a second; 0 = none.
  uint64_t read_bytes_per_s = 0;
  uint64_t write_bytes_per_s = 0;
  bool direct = true;
};

// capacity / 64 within [16 MiB, 256 MiB], but never more than 512 files (each keeps a descriptor).
uint64_t default_segment_bytes(uint64_t capacity_bytes) noexcept;
// The smallest capacity of a new directory.
uint64_t least_disk_bytes() noexcept;
// The largest capacity: the limit of what a location can address.
uint64_t most_disk_bytes() noexcept;

class DiskCore;

class DiskTier final : public Tier {
 public:
  // Blocks: takes the lock, checks the directory and rebuilds the index. in_use, newer_version,
  // damaged, exists (foreign files), bad_config (capacity), disk_full, not_permitted, io_error.
  static Result<std::unique_ptr<DiskTier>> open(const DiskTierOptions& options, FileSystem& fs, Executor& executor,
                                                FamilyTable& families, Random& random, TierListener* listener,
                                                TierIndex index);
  ~DiskTier() override;

  [[nodiscard]] std::string_view kind() const noexcept override { return "disk"; }
  [[nodiscard]] std::string describe() const override;
  void find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept override;
  [[nodiscard]] bool offers_what_it_lets_go() const noexcept override { return true; }
  bool pin(const Identity& id) noexcept override;
  void unpin(const Identity& id) noexcept override;
  void put(std::unique_ptr<PutBatch> batch) override;
  void get(std::unique_ptr<GetBatch> batch) override;
  [[nodiscard]] bool reads_from_files() const noexcept override;
  void erase(std::span<const Identity> ids) override;
  void hint(std::span<const Identity> ids, uint8_t priority) override;
  void reject(const Identity& id, uint64_t location) override;
  Status erase_family(FamilyId family) override;
  Status erase_families(std::span<const FamilyId> families) override;
  void families(FamilyTable::Named& named) override;
  size_t scan(uint64_t& cursor, std::span<ScanRow> out) override;
  [[nodiscard]] TierStats stats() const override;
  Result<uint64_t> epoch(const NamespaceId& base_id) override;
  Status set_epoch(const NamespaceId& base_id, uint64_t epoch) override;
  Status set_epochs(std::span<const EpochRow> rows, std::span<const NamespaceId> forgotten,
                    std::span<const EpochRow> floored) override;
  std::vector<EpochRow> epochs() override;
  std::vector<uint64_t> epoch_floors() override;
  void sync(UniqueFunction<void(const Status&)> done) override;
  void shutdown(UniqueFunction<void()> done) override;

 private:
  explicit DiskTier(std::shared_ptr<DiskCore> core);
  // Shared with the completions in flight, which may outlive the tier.
  std::shared_ptr<DiskCore> core_;
};

}  // namespace kvbm::tier::disk
