// A tier with its records in a store: S3, Redis, a shared file system, or a plug-in (object_store.h).
//
// Records are packed into objects of a few MiB. An index object lists the records in packs. Every process reads the
// index objects of all others as they appear. So lookups are answered from memory, and records written by one host are
// found by another. Records that are read are checked as if an attacker had written them. A store that is slow, full,
// down or wrong costs misses only: every request has a deadline, a bound and a back-off (requests.h). Format: README.md
// of this folder; use: docs/stores.md.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/crypto/random.h"
#include "base/family/family_table.h"
#include "base/telemetry/log.h"
#include "base/thread/executor.h"
#include "tier/store/object_store.h"
#include "tier/tier.h"

namespace kvbm::tier::store {

struct StoreTierOptions {
  uint64_t capacity_bytes = 0;                  // of all packs of all hosts; the oldest are removed beyond it. 0: none
  uint64_t pack_bytes = 0;                      // 0: what the store prefers
  uint64_t linger_ns = 50'000'000;              // a pack that is not full is sent after this long
  uint64_t publish_ns = 200'000'000;            // between two index objects of this process
  uint64_t poll_ns = 500'000'000;               // between two listings of other processes' objects
  uint64_t ttl_s = 0;                           // packs older than this are removed; 0: never
  uint64_t staging_bytes = uint64_t{64} << 20;  // memory for bytes on their way, both directions together
  uint64_t ahead_bytes = UINT64_MAX;  // of staging_bytes, for reading ahead; 0: nothing; the default is a quarter
  uint64_t index_bytes = uint64_t{1} << 30;  // memory for the index
  uint64_t timeout_ns = 5'000'000'000;       // of one try of one request
  bool write = true;                         // off: only reads, and changes nothing in the store
  std::function<uint64_t()> unix_ms;         // null: the system's clock
};

class StoreCore;

class StoreTier final : public Tier {
 public:
  // Asks the store for the epochs of namespaces, for `open_ns` at most, and begins to read index objects. A store that
  // does not answer is no error: nothing is found in it until it does.
  static Result<std::unique_ptr<StoreTier>> open(std::unique_ptr<ObjectStore> store, StoreTierOptions options,
                                                 Executor& executor, const FamilyTable& families, Random& random,
                                                 Log* log, TierIndex index, TierListener* listener,
                                                 uint64_t open_ns = 2'000'000'000);
  ~StoreTier() override;

  [[nodiscard]] std::string_view kind() const noexcept override { return "store"; }
  [[nodiscard]] std::string describe() const override;
  void find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept override;
  bool pin(const Identity& id) noexcept override;
  void unpin(const Identity& id) noexcept override;
  void put(std::unique_ptr<PutBatch> batch) override;
  void get(std::unique_ptr<GetBatch> batch) override;
  void erase(std::span<const Identity> ids) override;
  void reject(const Identity& id, uint64_t location) override;
  Status erase_family(FamilyId family) override;
  size_t scan(uint64_t& cursor, std::span<ScanRow> out) override;
  [[nodiscard]] TierStats stats() const override;
  Result<uint64_t> epoch(const NamespaceId& base_id) override;
  Status set_epoch(const NamespaceId& base_id, uint64_t epoch) override;
  // False for a store that is only read.
  [[nodiscard]] bool keeps_epochs() const noexcept override;
  Status set_epochs(std::span<const EpochRow> rows, std::span<const NamespaceId> forgotten,
                    std::span<const EpochRow> floored) override;
  void sync(UniqueFunction<void(const Status&)> done) override;
  void shutdown(UniqueFunction<void()> done) override;

 private:
  explicit StoreTier(std::shared_ptr<StoreCore> core);
  std::shared_ptr<StoreCore> core_;
};

}  // namespace kvbm::tier::store
