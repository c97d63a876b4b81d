#include "tier/disk/disk_tier.h"

#include "base/thread/memory_wait.h"
#include "tier/disk/disk_core.h"

namespace kvbm::tier::disk {
namespace {

// Remedy for the machine's administrator.
const char* remedy(Code code, const std::string& message) noexcept {
  // Messages about ownership and permissions already have their own (base/io/ownership.h).
  if (message.find("chmod") != std::string::npos || message.find("chown") != std::string::npos) return "";
  switch (code) {
    case Code::in_use:
      return "; stop it, or choose another directory";
    case Code::newer_version:
      return "; open it with that version or a later one, or choose another directory";
    case Code::not_permitted:
      return "; let this user write there, or choose another directory";
    case Code::disk_full:
      return "; free space on its file system, or choose another directory";
    default:
      return "";
  }
}

Status with_remedy(const Status& status) {
  const std::string what = std::string(status.what()) + ": ";
  const std::string message = status.message();
  const char* const what_helps = remedy(status.code(), message);
  if (*what_helps == 0 || !message.starts_with(what)) return status;
  return {status.code(), status.what(), message.substr(what.size()) + what_helps};
}

}  // namespace

Result<std::unique_ptr<DiskTier>> DiskTier::open(const DiskTierOptions& options, FileSystem& fs, Executor& executor,
                                                 FamilyTable& families, Random& random, TierListener* listener,
                                                 TierIndex index) {
  auto core = std::make_shared<DiskCore>(options, executor, families, listener, index);
  if (const Status s = core->open(fs, random); !s.ok()) return with_remedy(s);
  return std::unique_ptr<DiskTier>(new DiskTier(std::move(core)));
}

DiskTier::DiskTier(std::shared_ptr<DiskCore> core) : core_(std::move(core)) {}
DiskTier::~DiskTier() = default;

std::string DiskTier::describe() const { return core_->describe(); }
void DiskTier::find(std::span<const Identity> ids, std::span<Found> out, bool touch) noexcept {
  core_->find(ids, out, touch);
}
// These calls end by a callback or cannot report a failure, and take from queues as they go. So they wait for memory.
bool DiskTier::pin(const Identity& id) noexcept {
  const MemoryWait patient;
  return core_->pin(id);
}
void DiskTier::unpin(const Identity& id) noexcept {
  const MemoryWait patient;
  core_->unpin(id);
}
void DiskTier::put(std::unique_ptr<PutBatch> batch) {
  const MemoryWait patient;
  core_->put(std::move(batch), {});
}
bool DiskTier::reads_from_files() const noexcept { return core_->reads_from_files(); }
void DiskTier::get(std::unique_ptr<GetBatch> batch) {
  const MemoryWait patient;
  core_->get(std::move(batch), false);
}
void DiskTier::erase(std::span<const Identity> ids) {
  const MemoryWait patient;
  core_->erase(ids);
}
void DiskTier::hint(std::span<const Identity> ids, uint8_t priority) {
  const MemoryWait patient;
  core_->hint(ids, priority);
}
void DiskTier::reject(const Identity& id, uint64_t location) {
  const MemoryWait patient;
  core_->reject(id, location);
}
void DiskTier::sync(UniqueFunction<void(const Status&)> done) {
  const MemoryWait patient;
  core_->sync(std::move(done));
}
void DiskTier::shutdown(UniqueFunction<void()> done) {
  const MemoryWait patient;
  core_->shutdown(std::move(done));
}
Status DiskTier::erase_family(FamilyId family) { return core_->erase_families({&family, 1}); }
Status DiskTier::erase_families(std::span<const FamilyId> families) { return core_->erase_families(families); }
void DiskTier::families(FamilyTable::Named& named) { core_->families(named); }
size_t DiskTier::scan(uint64_t& cursor, std::span<ScanRow> out) { return core_->scan(cursor, out); }
TierStats DiskTier::stats() const { return core_->stats(); }
Result<uint64_t> DiskTier::epoch(const NamespaceId& base_id) { return core_->epoch(base_id); }
std::vector<EpochRow> DiskTier::epochs() { return core_->epochs(); }
std::vector<uint64_t> DiskTier::epoch_floors() { return core_->epoch_floors(); }
Status DiskTier::set_epochs(std::span<const EpochRow> rows, std::span<const NamespaceId> forgotten,
                            std::span<const EpochRow> floored) {
  return core_->set_epochs(rows, forgotten, floored);
}
Status DiskTier::set_epoch(const NamespaceId& base_id, uint64_t epoch) {
  const EpochRow row{base_id, epoch, 0, false};
  return core_->set_epochs({&row, 1}, {}, {});
}

}  // namespace kvbm::tier::disk
