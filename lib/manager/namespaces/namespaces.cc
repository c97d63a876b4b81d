#include "manager/namespaces/namespaces.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/thread/memory_wait.h"
#include "manager/lower/coded_tiers.h"
#include "manager/lower/coding_terms.h"

namespace kvbm::manager {

namespace {

// Moves handles on to an epoch. Adds the namespaces, at their old epochs, to `ended`.
void advance(std::span<const std::shared_ptr<Namespace>> handles, uint64_t epoch, std::set<NamespaceId>& ended) {
  for (const auto& handle : handles) {
    if (handle->epoch() >= epoch) continue;
    ended.insert(handle->id());
    handle->advance(epoch);
  }
}

}  // namespace

Namespaces::Namespaces(TierStack& stack, std::shared_ptr<CodingTerms> coding_terms)
    : stack_(stack), host_(stack.host()), coding_terms_(std::move(coding_terms)) {}

Result<std::shared_ptr<Namespace>> Namespaces::open(NamespaceOptions options) {
  if (options.model.empty()) return Status(Code::invalid_argument, "a namespace needs a model identity");
  if (options.tenant.size() > 1024 || options.model.size() > 1024 || options.adapter.size() > 1024) {
    return Status(Code::invalid_argument, "tenant, model and adapter are at most 1024 bytes each");
  }
  const NamespaceId base_id = Namespace::base_id_of(options);
  const auto in_tiers = epoch_in_tiers(base_id);
  if (!in_tiers.ok()) return in_tiers.status();
  std::shared_ptr<Namespace> ns;
  uint64_t persisted = 0;
  bool by_floor = false;
  {
    MutexLock lock(mutex_);
    if (known_.size() >= 2 * known_after_sweep_ + 64) drop_unused();
    Known& known = known_[base_id];
    persisted = std::max(in_tiers.value(), host_.arena().epoch(base_id));
    const uint64_t here = epoch_to_open(base_id);
    if (persisted <= here) persisted = 0;
    const uint64_t epoch = std::max({options.epoch, here, persisted});
    by_floor = here != 0 && epoch == here && !epochs_.has_row(base_id) && live_handles(base_id).empty();
    auto account = known.account.lock();
    if (options.quota_bytes != 0) {
      auto limited = limit_account(base_id, known, options.quota_bytes, options.quota_mode);
      if (!limited.ok()) return limited.status();
      account = std::move(limited).value();
    }
    ns = std::make_shared<Namespace>(std::move(options), host_.families(), std::move(account), epoch, coding_terms_);
    std::erase_if(known.handles, [](const std::weak_ptr<Namespace>& handle) { return handle.expired(); });
    known.handles.push_back(ns);
    epochs_.own(base_id);
  }
  // An epoch that an earlier process stored in one tier is passed on to the other tiers and nodes. A tier that cannot
  // store it finds no wrong block: block names contain their epoch.
  if (persisted != 0) {
    (void)raise_epoch(base_id, persisted);
  } else if (by_floor) {
    report_floor(base_id, ns->epoch());
  }
  return ns;
}

// Reports a floor of this process to others: a process that has the namespace open may not know the floor, and would
// continue at another epoch.
void Namespaces::report_floor(const NamespaceId& base_id, uint64_t epoch) {
  for (const auto& tier : stack_.lower().all()) {
    if (!is_storage(*tier)) (void)tier->set_epoch(base_id, epoch);  // of other nodes or processes
  }
}

Status Namespaces::set_quota(Namespace& ns, uint64_t bytes, block::OverQuota mode) {
  MutexLock lock(mutex_);
  return limit_account(ns.base_id(), known_[ns.base_id()], bytes, mode).status();
}

// Leases the account with the first quota; older blocks stay in the shared account.
Result<Accounts::Lease> Namespaces::limit_account(const NamespaceId& base_id, Known& known, uint64_t bytes,
                                                  block::OverQuota mode) {
  const uint64_t slots = bytes == 0 ? block::kNoLimit : bytes / host_.arena().slot_bytes();
  if (slots == 0) {
    return Status(
        Code::invalid_argument, "the quota is smaller than one block",
        std::to_string(bytes) + " bytes, a block with its head takes " + std::to_string(host_.arena().slot_bytes()));
  }
  auto account = known.account.lock();
  if (account == nullptr) {
    if (bytes == 0) return account;
    auto leased = accounts_.lease(base_id, host_.table());
    if (!leased.ok()) return leased.status();
    account = std::move(leased).value();
  }
  const auto limit = static_cast<uint32_t>(std::min<uint64_t>(slots, block::kNoLimit));
  std::vector<block::Evicted> gone;
  const Code code = host_.table().set_limit(*account, limit, mode, &gone, host_.tick());
  stack_.report_displaced(gone);
  if (code != Code::ok) return Status(code, "the quota could not be set");
  known.account = account;
  for (const auto& handle : known.handles) {
    if (const auto ns = handle.lock()) ns->set_account(account);
  }
  return account;
}

// The tier that reports the epoch has it written down. So it counts although another tier does not write it down, as in
// open(). A second report costs nothing: a write may take a thread of the executor for seconds.
void Namespaces::epoch_raised(const NamespaceEpoch& row) {
  {
    MutexLock lock(mutex_);
    const auto handles = live_handles(row.base);
    if (std::all_of(handles.begin(), handles.end(), [&row](const auto& h) { return h->epoch() >= row.epoch; })) return;
  }
  const Status raised = raise_epoch(row.base, row.epoch);
  if (raised.ok()) return;
  host_.env().log->write(LogLevel::warning, "manager", raised.message());
  cluster::EpochWord word{row.base, row.epoch};
  std::set<NamespaceId> ended;
  {
    MutexLock raising(raising_);
    bool leaves_nothing = false;
    ended = commit_epochs(plan_epochs({&word, 1}, 0, Speaker::self, leaves_nothing));
    MutexLock lock(mutex_);
    advance(live_handles(row.base), row.epoch, ended);  // its row may have no place
  }
  (void)erase_ended(ended);
}

Status Namespaces::invalidate(Namespace& ns) {
  Status raised = raise_epoch(ns.base_id(), 0);
  if (raised.ok() && epochs_end_before_records()) {
    return {Code::unsupported, "the namespace is invalidated, but no tier keeps that over a restart",
            "a plug-in tier, or a store with write=off, may then have its old blocks: add a disk tier or host_file, or "
            "open the namespace with epoch " +
                std::to_string(ns.epoch()) + " or later"};
  }
  return raised;
}

// A plug-in has no place for epochs, nor has a store that is only read. Their records may outlive this process.
bool Namespaces::epochs_end_before_records() {
  bool outlived = false;
  for (const auto& tier : stack_.lower().all()) {
    if (!is_storage(*tier)) continue;
    if (tier->keeps_epochs()) return false;  // disks, and stores that are written
    outlived = true;
  }
  return outlived && host_.arena().marks().empty();  // a host file keeps epochs too
}

Status Namespaces::reset(Namespace& ns) {
  Status first = erase_families_of(ns.id());
  host_.events().cleared(ns.id());
  return first.ok() ? host_.arena().sync() : first;
}

// Erases every family of the namespace, including those of other handles and of earlier processes.
Status Namespaces::erase_families_of(const NamespaceId& id) {
  Status first;
  for (const FamilyId family : host_.families().of(id)) {
    Status erased = stack_.erase_family(family);
    if (!erased.ok() && first.ok()) first = std::move(erased);
  }
  return first;
}

// ---- Epochs ----

Status Namespaces::raise_epoch(const NamespaceId& base_id, uint64_t wanted) {
  cluster::EpochWord word{base_id, wanted};
  return raise_epochs({&word, 1}, 0, Speaker::self);
}

// Raises several epochs. Each word has its own code. The status is that of the write, or of the word if there is one
// only.
Status Namespaces::raise_epochs(std::span<cluster::EpochWord> words, uint32_t may_add, Speaker speaker) {
  std::set<NamespaceId> ended;
  bool leaves_nothing = false;
  {
    MutexLock raising(raising_);
    const EpochTable::Plan plan = plan_epochs(words, may_add, speaker, leaves_nothing);
    if (words.size() == 1 && words[0].code == Code::at_limit) {
      return {Code::at_limit, "the tiers keep epochs of 4,096 namespaces, and all of these are open: close some"};
    }
    // The epoch would wrap around to the first one, and blocks of that ended long ago.
    if (words.size() == 1 && words[0].code == Code::invalid_argument) {
      return {Code::invalid_argument, "the namespace is at its last epoch and cannot be invalidated again"};
    }
    if (plan.rows.empty()) return {};
    if (Status written = write_epochs(plan, words); !written.ok()) return written;
    ended = commit_epochs(plan);
  }
  const MemoryWait until_told;  // the epoch is raised: no refused memory may report that it is not
  for (cluster::EpochWord& word : words) {
    if (word.code == Code::ok) word.known = std::max(word.known, word.epoch);
  }
  leaves_nothing = erase_ended(ended) && leaves_nothing;
  if (leaves_nothing && !ended.empty()) {
    MutexLock lock(mutex_);
    epochs_.note_clean(words[0].base, words[0].known);
  }
  return host_.arena().sync();
}

// Plans all words. `leaves_nothing`: the only word ends an epoch that left no records.
EpochTable::Plan Namespaces::plan_epochs(std::span<cluster::EpochWord> words, uint32_t may_add, Speaker speaker,
                                         bool& leaves_nothing) {
  const auto census = take_row_census(words.size());
  EpochTable::Plan plan;
  MutexLock lock(mutex_);
  EpochTable::Needed needed = [this, &census](const NamespaceId& base)
                                  KVBM_NO_TSA { return need_of_row(*census, base); };
  epochs_.begin();
  for (cluster::EpochWord& word : words) plan_epoch(plan, word, may_add, speaker, needed);
  if (!plan.rows.empty()) epochs_.add_unwritten(plan);
  // True if the old epoch is 0, or left no records.
  leaves_nothing =
      speaker == Speaker::self && words.size() == 1 && (words[0].known == 0 || epochs_.is_clean(words[0].base));
  return plan;
}

// Writes a plan into all tiers, up to the first one that fails. Then words that were to be raised get its code.
Status Namespaces::write_epochs(const EpochTable::Plan& plan, std::span<cluster::EpochWord> words) {
  for (const auto& tier : stack_.lower().all()) {
    const Status set = tier->set_epochs(plan.rows, plan.forgotten, plan.floored);
    if (set.ok()) continue;
    for (cluster::EpochWord& word : words) {
      if (word.code == Code::ok && word.known < word.epoch) word.code = set.code();
      word.added = false;
    }
    return set;
  }
  return {};
}

// Makes a plan that all tiers have the state of this process. Returns the namespaces, at their old epochs, of handles
// that it moved on.
std::set<NamespaceId> Namespaces::commit_epochs(const EpochTable::Plan& plan) {
  std::set<NamespaceId> ended;
  MutexLock lock(mutex_);
  epochs_.commit(plan);
  for (const NamespaceId& base : plan.forgotten) {
    if (epochs_.epoch(base) == 0) host_.arena().forget_epoch(base);
  }
  for (const tier::EpochRow& row : plan.rows) {
    const auto handles = live_handles(row.base);
    if (!handles.empty()) epochs_.own(row.base);
    host_.arena().set_epoch(row.base, row.epoch, row.foreign && handles.empty());
    advance(handles, row.epoch, ended);
  }
  return ended;
}

// Erases the records of ended epochs. No lookup finds these blocks any more, so this only frees their space. False:
// some stay.
bool Namespaces::erase_ended(const std::set<NamespaceId>& ended) {
  bool all = true;
  for (const NamespaceId& id : ended) {
    const Status erased = erase_families_of(id);
    all = all && erased.ok();
    if (erased.ok() || erased.code() == Code::unsupported) continue;
    host_.env().log->write(LogLevel::warning, "manager", "an old epoch's records stay until they are evicted");
  }
  for (const NamespaceId& id : ended) host_.events().cleared(id);
  return all;
}

// Plans one word. Sets `known` to this process's epoch, and `epoch` of a word that is to be written to a higher one.
void Namespaces::plan_epoch(EpochTable::Plan& plan, cluster::EpochWord& word, uint32_t& may_add, Speaker speaker,
                            EpochTable::Needed& needed) {
  word.known = epoch_here(word.base);
  const bool by_floor = word.known != 0 && !epochs_.has_row(word.base) && live_handles(word.base).empty();
  uint64_t epoch = word.epoch;
  if (speaker == Speaker::self) {
    const uint64_t row = epochs_.epoch(word.base);
    if (epoch == 0 && word.known == UINT64_MAX) {
      word.code = Code::invalid_argument;
      return;
    }
    if (epoch == 0) epoch = word.known + 1;
    if (row >= epoch) return;
    if (by_floor) epoch = std::max(epoch, word.known);
    word.epoch = epoch;
  } else {
    if (speaker == Speaker::peer && !EpochTable::plausible(word.known, epoch)) {
      word.code = Code::invalid_argument;
      return;
    }
    // Peers do not know of a floor here: those that have the namespace open must be notified.
    if (epoch == 0 || (word.known >= epoch && !by_floor)) return;
    epoch = std::max(epoch, word.known);
  }
  const bool foreign = speaker == Speaker::peer && live_handles(word.base).empty();
  EpochTable::Plan tried = plan;
  bool added = false;
  word.code = epochs_.raise(tried, word.base, epoch, foreign, needed, added);
  if (word.code == Code::ok && added && foreign) {
    if (may_add == 0) word.code = Code::at_limit;
    may_add -= may_add != 0 ? 1 : 0;
    word.added = word.code == Code::ok;
  }
  if (word.code == Code::ok) plan = std::move(tried);
}

// Facts that decide which rows of namespaces without a handle can be dropped. A foreign row is passed on to nodes
// that were offline. It also protects a handle opened later from blocks of ended epochs that lie here. The nodes that
// use the namespace can report both again. A row of this process's own can be dropped once no tier here has a record
// that could be of an older epoch, and no other node can have one. The namespace of a record that an earlier process
// left is unknown until it is opened. So while there are such records, only rows of namespaces that this process has
// invalidated and erased completely are dropped. Any other row is dropped only by raising its floor: then a handle
// that is opened, or a peer that asks (epochs()), begins no earlier than the row's epoch.
struct Namespaces::RowCensus {
  bool nothing_goes = true;
  bool unknown = false;             // some record is of a namespace that no handle of this process had
  std::vector<NamespaceId> in_use;  // base ids, sorted
  std::vector<NamespaceId> named;   // ids of families, sorted
};

std::shared_ptr<const Namespaces::RowCensus> Namespaces::take_row_census(size_t words) {
  auto out = std::make_shared<RowCensus>();
  EpochRows rows;
  {
    MutexLock lock(mutex_);
    rows = {epochs_.size(), epochs_.foreign()};
  }
  if (rows.foreign != 0 && (rows.foreign + words > EpochTable::kForeignRows || rows.all + words > EpochTable::kRows)) {
    for (const FamilyId family : host_.families().all()) out->named.push_back(host_.families().get(family).ns);
    std::sort(out->named.begin(), out->named.end());
  }
  if (rows.all + words <= EpochTable::kRows) return out;
  const auto tiers = stack_.lower().all();
  const auto can_be_seen = [](const auto& tier) { return tier->kind() == "disk"; };
  if (!std::all_of(tiers.begin(), tiers.end(), can_be_seen)) return out;
  out->nothing_goes = false;
  FamilyTable::Named stored = host_.families().begin_give_back();
  stack_.add_stored(stored);
  for (const FamilyId family : stored.all()) {
    NamespaceId of;
    if (host_.families().base_of(family, of))
      out->in_use.push_back(of);
    else
      out->unknown = true;
  }
  std::sort(out->in_use.begin(), out->in_use.end());
  return out;
}

EpochTable::Need Namespaces::need_of_row(const RowCensus& census, const NamespaceId& base) {
  using Need = EpochTable::Need;
  if (!live_handles(base).empty()) return Need::row;
  if (epochs_.is_foreign(base)) {
    return std::binary_search(census.named.begin(), census.named.end(), base) ? Need::row : Need::nothing;
  }
  const bool needed = census.nothing_goes || (census.unknown && !epochs_.is_clean(base)) ||
                      std::binary_search(census.in_use.begin(), census.in_use.end(), base);
  return needed ? Need::epoch : Need::nothing;
}

void Namespaces::hear_epochs(std::vector<cluster::EpochWord> words, uint32_t may_add, bool trusted,
                             UniqueFunction<void(std::vector<cluster::EpochWord>)> done) {
  {
    MutexLock lock(heard_mutex_);
    if (heard_.size() < kHeardWaiting) {
      heard_.push_back([this, words = std::move(words), may_add, speaker = trusted ? Speaker::client : Speaker::peer,
                        call = std::move(done)]() mutable {
        (void)raise_epochs(words, may_add, speaker);
        call(std::move(words));
      });
      if (std::exchange(hearing_, true)) return;
      done = {};
    }
  }
  if (done) {
    for (cluster::EpochWord& word : words) word.code = Code::again;
    return done(std::move(words));
  }
  host_.env().executor->post([this, alive = host_.lifetime().keep()] { run_heard(); });
}

void Namespaces::run_heard() {
  UniqueFunction<void()> merge;
  {
    MutexLock lock(heard_mutex_);
    merge = std::move(heard_.front());
    heard_.pop_front();
  }
  merge();
  MutexLock lock(heard_mutex_);
  hearing_ = !heard_.empty();
  if (hearing_) host_.env().executor->post([this, alive = host_.lifetime().keep()] { run_heard(); });
}

void Namespaces::adopt_epochs(tier::Tier& from) {
  const std::vector<uint64_t> floors = from.epoch_floors();
  const std::vector<tier::EpochRow> rows = from.epochs();
  MutexLock lock(mutex_);
  epochs_.load_floors(floors);
  epochs_.load(rows);
}

void Namespaces::adopt_epochs() {
  {
    const std::vector<tier::EpochRow> rows = host_.arena().epochs();
    MutexLock lock(mutex_);
    epochs_.load(rows);
  }
  for (const auto& tier : stack_.lower().all()) adopt_epochs(*tier);
}

void Namespaces::drop_unused() {
  std::erase_if(known_, [](const auto& known) {
    const auto& handles = known.second.handles;
    return std::all_of(handles.begin(), handles.end(), [](const auto& handle) { return handle.expired(); }) &&
           known.second.account.expired();
  });
  known_after_sweep_ = known_.size();
}

std::vector<std::shared_ptr<Namespace>> Namespaces::live_handles(const NamespaceId& base_id) {
  std::vector<std::shared_ptr<Namespace>> out;
  const auto known = known_.find(base_id);
  if (known == known_.end()) return out;
  for (const auto& handle : known->second.handles) {
    if (auto live = handle.lock()) out.push_back(std::move(live));
  }
  return out;
}

uint64_t Namespaces::epoch_here(const NamespaceId& base_id) {
  const auto handles = live_handles(base_id);
  if (handles.empty() && !epochs_.has_row(base_id)) return epochs_.floor(base_id);
  uint64_t epoch = epochs_.epoch(base_id);
  for (const auto& handle : handles) epoch = std::max(epoch, handle->epoch());
  return epoch;
}

// Returns the first epoch of a handle that names none: that of other such handles, which may have begun at a floor.
uint64_t Namespaces::epoch_to_open(const NamespaceId& base_id) {
  const auto handles = live_handles(base_id);
  if (handles.empty()) return epoch_here(base_id);
  uint64_t epoch = epochs_.epoch(base_id);
  for (const auto& handle : handles) {
    if (handle->epoch() > handle->named_epoch()) epoch = std::max(epoch, handle->epoch());
  }
  return epoch;
}

// Returns the highest epoch of a namespace that a tier knows.
Result<uint64_t> Namespaces::epoch_in_tiers(const NamespaceId& base_id) {
  uint64_t epoch = 0;
  for (const auto& tier : stack_.lower().all()) {
    const auto persisted = tier->epoch(base_id);
    if (!persisted.ok()) return persisted.status();
    epoch = std::max(epoch, persisted.value());
  }
  return epoch;
}

Result<uint64_t> Namespaces::epoch_of(const NamespaceId& base_id) {
  const auto persisted = epoch_in_tiers(base_id);
  if (!persisted.ok()) return persisted.status();
  MutexLock lock(mutex_);
  return std::max({epoch_here(base_id), host_.arena().epoch(base_id), persisted.value()});
}

std::vector<NamespaceEpoch> Namespaces::epochs() {
  MutexLock lock(mutex_);
  std::vector<NamespaceEpoch> out;
  for (const tier::EpochRow& row : epochs_.rows()) out.push_back({row.base, row.epoch});
  for (const auto& [base_id, known] : known_) {
    if (epochs_.has_row(base_id)) continue;
    const auto open = [](const auto& handle) { return !handle.expired(); };
    if (std::any_of(known.handles.begin(), known.handles.end(), open)) out.push_back({base_id, 0});
  }
  return out;
}

Namespaces::EpochRows Namespaces::epoch_rows() {
  MutexLock lock(mutex_);
  return {epochs_.size(), epochs_.foreign()};
}

std::vector<NamespaceId> Namespaces::known() {
  MutexLock lock(mutex_);
  std::vector<NamespaceId> out;
  for (const auto& [base_id, known] : known_) out.push_back(base_id);
  return out;
}

}  // namespace kvbm::manager
