// A tier around another one. It codes and seals records on their way down and returns plain ones. README.md has the
// rules; codec/coded/coded_record.h describes what is stored.
//
// The layer above sees only plain records, also of records that an earlier configuration stored: a tier that codes
// nothing still decodes coded records, or refuses them. Encoding and decoding run on the executor, never on the
// caller's thread. The memory that they use is bounded; work without memory waits in order and ends at its deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/crypto/random.h"
#include "base/telemetry/log.h"
#include "base/thread/executor.h"
#include "codec/coded/coded_record.h"
#include "codec/seal/seal.h"
#include "tier/coded/tier_choice.h"
#include "tier/tier.h"

namespace kvbm::tier::coded {

// Facts about the records of a family, and what its namespace configured.
struct FamilyTerms {
  codec::RecordForm form;
  uint64_t plain_bytes = 0;  // of every payload; 0: they differ, or it is not known
  codec::Recipe recipe;      // the namespace's own; no rules: as the tier codes
  bool allow_lossy = false;  // some reader accepts lossy records; the receiver checks again for each reader
};

struct CodedTierOptions {
  bool automatic = false;
  codec::Mode mode = codec::Mode::off;  // unless automatic; off: nothing is coded, and namespaces' recipes are not used
  Goal goal = Goal::speed;
  std::shared_ptr<const codec::KeyRing> keys;  // set: everything is sealed; null: nothing is
  uint64_t read_budget_bytes = uint64_t{32} << 20;
  uint64_t write_budget_bytes = uint64_t{32} << 20;
  uint64_t most_payload_bytes = 0;  // largest payload of any record that is put or read
  // Null: nothing is known of the family; its records are not coded (but sealed). Thread: any.
  std::function<std::shared_ptr<const FamilyTerms>(FamilyId)> terms;
  // link: ns that reading a stored byte takes. measure: begins a measurement of it; the function it returns is called
  // with the time and the bytes read. Only if automatic.
  std::function<double(uint64_t now_ns)> link;
  std::function<UniqueFunction<void(uint64_t now_ns, uint64_t got)>(uint64_t now_ns, uint64_t bytes)> measure;
  const Log* log = nullptr;
};

class CodedCore;

class CodedTier final : public Tier {
 public:
  CodedTier(CodedTierOptions options, std::unique_ptr<Tier> inner, Executor& executor, Random& random);
  ~CodedTier() override;

  [[nodiscard]] std::string_view kind() const noexcept override { return inner_->kind(); }
  [[nodiscard]] std::string describe() const override;
  void find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept override;
  [[nodiscard]] bool offers_what_it_lets_go() const noexcept override { return inner_->offers_what_it_lets_go(); }
  [[nodiscard]] bool keeps_epochs() const noexcept override { return inner_->keeps_epochs(); }
  bool pin(const Identity& id) noexcept override { return inner_->pin(id); }
  void unpin(const Identity& id) noexcept override { inner_->unpin(id); }
  void put(std::unique_ptr<PutBatch> batch) override;
  void get(std::unique_ptr<GetBatch> batch) override;
  // False where everything must be sealed: then all reads pass this tier.
  [[nodiscard]] bool reads_from_files() const noexcept override;
  void in_place(std::span<InPlace> items) noexcept override;
  void read_in_place(std::span<const InPlace> items) noexcept override { inner_->read_in_place(items); }
  void erase(std::span<const Identity> ids) override;
  void hint(std::span<const Identity> ids, uint8_t priority) override;
  void reject(const Identity& id, uint64_t location) override { inner_->reject(id, location); }
  Status erase_family(FamilyId family) override;
  Status erase_families(std::span<const FamilyId> families) override;
  void families(FamilyTable::Named& named) override;
  void forget_families(std::span<const FamilyId> gone) override;
  size_t scan(uint64_t& cursor, std::span<ScanRow> out) override { return inner_->scan(cursor, out); }
  [[nodiscard]] TierStats stats() const override;
  Result<uint64_t> epoch(const NamespaceId& base_id) override { return inner_->epoch(base_id); }
  Status set_epoch(const NamespaceId& base_id, uint64_t epoch) override { return inner_->set_epoch(base_id, epoch); }
  Status set_epochs(std::span<const EpochRow> rows, std::span<const NamespaceId> forgotten,
                    std::span<const EpochRow> floored) override {
    return inner_->set_epochs(rows, forgotten, floored);
  }
  std::vector<EpochRow> epochs() override { return inner_->epochs(); }
  std::vector<uint64_t> epoch_floors() override { return inner_->epoch_floors(); }
  // Covers only records that were passed to the inner tier: what is not coded yet is not stored yet.
  void sync(UniqueFunction<void(const Status&)> done) override { inner_->sync(std::move(done)); }
  void shutdown(UniqueFunction<void()> done) override;

 private:
  const std::unique_ptr<Tier> inner_;
  // Shared with the work in flight, which may outlive the tier.
  const std::shared_ptr<CodedCore> core_;
};

}  // namespace kvbm::tier::coded
