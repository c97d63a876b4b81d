#include "base/family/family_table.h"

#include <algorithm>
#include <utility>

namespace kvbm {

FamilyTable::FamilyTable() = default;

FamilyTable::~FamilyTable() {
  for (auto& page : pages_) delete page.load(std::memory_order_relaxed);
}

void FamilyTable::on_growth(std::function<void()> now, std::function<void()> soon) {
  now_ = std::move(now);
  soon_ = std::move(soon);
}

// No geometry has this fingerprint and no namespace id is zero.
Family FamilyTable::no_family() noexcept {
  Family none;
  none.geometry = UINT64_MAX;
  none.component = UINT16_MAX;
  return none;
}

const FamilyCell* FamilyTable::cell(FamilyId id) const noexcept {
  // Pairs with the release store in new_cell().
  const Page* const page = pages_[cell_of(id) / kPage].load(std::memory_order_acquire);
  return page != nullptr ? &(*page)[cell_of(id) % kPage] : nullptr;
}

Family FamilyTable::get(FamilyId id) const noexcept {
  Family family;
  const FamilyCell* const at = cell(id);
  return at != nullptr && at->get(id, family) ? family : no_family();
}

bool FamilyTable::has(FamilyId id) const noexcept {
  const FamilyCell* const at = cell(id);
  return id != kNoFamily && at != nullptr && at->has(id);
}

// Takes a cell that an earlier family has released, if there is one. So memory grows with the families present at one
// time only.
bool FamilyTable::new_cell(size_t& at) {
  if (!free_.empty()) {
    at = free_.front();
    free_.pop_front();
    return true;
  }
  if (rows_.size() == kMaxFamilies) return false;
  at = rows_.size();
  auto& page = pages_[at / kPage];
  if (page.load(std::memory_order_relaxed) == nullptr) page.store(new Page(), std::memory_order_release);
  rows_.emplace_back();
  return true;
}

void FamilyTable::make_own(Row& row) {
  if (!row.foreign) return;
  row.foreign = false;
  foreign_.fetch_sub(1, std::memory_order_relaxed);
  if (row.of != nullptr) row.of->fetch_sub(1, std::memory_order_relaxed);
  row.of.reset();
}

Status FamilyTable::refuse(const char* why) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  ++refusals_;
  return {Code::at_limit, why};
}

Result<FamilyId> FamilyTable::add(const Family& family, bool foreign, const PeerCount& of) {
  if (const auto it = ids_.find(family); it != ids_.end()) {
    Row& row = rows_[cell_of(it->second)];
    row.unnamed = false;
    if (!foreign) make_own(row);
    return it->second;
  }
  if (foreign && foreign_.load(std::memory_order_relaxed) >= kForeignFamilies) {
    return refuse("other nodes have named 16,384 namespace, component and shard combinations that are in use");
  }
  size_t at = 0;
  if (!new_cell(at)) {
    return Status(Code::at_limit,
                  "65,536 namespace, component and shard combinations are in use: they have blocks here or are open");
  }
  Row& row = rows_[at];
  const FamilyId id = FamilyId{row.next_use} << 16 | static_cast<FamilyId>(at);
  try {
    ids_.emplace(family, id);
  } catch (...) {
    free_.push_front(static_cast<uint16_t>(at));
    throw;
  }
  ++row.next_use;
  row.id = id;
  row.foreign = foreign;
  row.has_base = row.unnamed = false;
  row.of = foreign ? of : nullptr;
  if (foreign) foreign_.fetch_add(1, std::memory_order_relaxed);
  if (row.of != nullptr) row.of->fetch_add(1, std::memory_order_relaxed);
  (*pages_[at / kPage].load(std::memory_order_relaxed))[at % kPage].put(id, family);
  size_.fetch_add(1, std::memory_order_release);
  changes_.fetch_add(1, std::memory_order_release);
  return id;
}

Result<FamilyId> FamilyTable::intern(const Family& family) {
  bool soon = false;
  Result<FamilyId> id = kNoFamily;
  {
    MutexLock lock(mutex_);
    id = add(family, false, nullptr);
    soon = ask_soon();
  }
  if (soon) soon_();
  return id;
}

Result<FamilyId> FamilyTable::intern(const Family& family, const NamespaceId& base) {
  bool soon = false;
  Result<FamilyId> id = kNoFamily;
  {
    MutexLock lock(mutex_);
    id = add(family, false, nullptr);
    if (id.ok()) {
      Row& row = rows_[cell_of(id.value())];
      row.has_base = true;
      row.base = base;
    }
    soon = ask_soon();
  }
  if (soon) soon_();
  return id;
}

bool FamilyTable::ask_soon() {
  if (asked_soon_ || !soon_) return false;
  asked_soon_ = size() >= due_.load(std::memory_order_relaxed) ||
                foreign_.load(std::memory_order_relaxed) >= foreign_due_ || refusals_ >= refusals_due_;
  return asked_soon_;
}

Result<FamilyId> FamilyTable::intern_foreign(const Family& family, const PeerCount& of, uint32_t most) {
  bool soon = false;
  Result<FamilyId> id = kNoFamily;
  {
    MutexLock lock(mutex_);
    const bool full = of != nullptr && of->load(std::memory_order_relaxed) >= most && !ids_.contains(family);
    id = full ? refuse("a node has named as many namespace, component and shard combinations as it may")
              : add(family, true, of);
    soon = ask_soon();
  }
  if (soon) soon_();
  return id;
}

bool FamilyTable::find(const Family& family, FamilyId& out) const {
  MutexLock lock(mutex_);
  const auto it = ids_.find(family);
  if (it == ids_.end()) return false;
  rows_[cell_of(it->second)].unnamed = false;
  out = it->second;
  return true;
}

bool FamilyTable::base_of(FamilyId id, NamespaceId& out) const {
  MutexLock lock(mutex_);
  if (cell_of(id) >= rows_.size()) return false;
  const Row& row = rows_[cell_of(id)];
  if (row.id != id || !row.has_base) return false;
  out = row.base;
  return true;
}

std::vector<FamilyId> FamilyTable::all() const {
  MutexLock lock(mutex_);
  std::vector<FamilyId> out;
  out.reserve(ids_.size());
  for (const auto& [family, id] : ids_) out.push_back(id);
  std::sort(out.begin(), out.end());
  return out;
}

// ids_ is ordered by namespace.
std::vector<FamilyId> FamilyTable::of(const NamespaceId& ns) const {
  Family first{};
  first.ns = ns;
  std::vector<FamilyId> out;
  MutexLock lock(mutex_);
  for (auto it = ids_.lower_bound(first); it != ids_.end() && it->first.ns == ns; ++it) out.push_back(it->second);
  std::sort(out.begin(), out.end());
  return out;
}

// ---- Releasing ----

std::vector<FamilyId> FamilyTable::Named::all() const {
  std::vector<FamilyId> out;
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (named_[i]) out.push_back(ids_[i]);
  }
  return out;
}

// Runs twice where the table is full: unused families are released the second time.
void FamilyTable::make_room() {
  for (int i = 0; i < 2 && now_ && size() >= due_.load(std::memory_order_relaxed); ++i) now_();
}

FamilyTable::Named FamilyTable::begin_give_back() const {
  Named out;
  MutexLock lock(mutex_);
  out.ids_.reserve(rows_.size());
  for (const Row& row : rows_) out.ids_.push_back(row.id);
  out.named_.resize(rows_.size());
  return out;
}

void FamilyTable::drop(size_t at) {
  Row& row = rows_[at];
  FamilyCell& cell = (*pages_[at / kPage].load(std::memory_order_relaxed))[at % kPage];
  Family family;
  (void)cell.get(row.id, family);
  ids_.erase(family);
  cell.clear();
  make_own(row);
  row.id = kNoFamily;
  row.has_base = false;
  size_.fetch_sub(1, std::memory_order_release);
  changes_.fetch_add(1, std::memory_order_release);
  if (row.next_use <= kLastUse) free_.push_back(static_cast<uint16_t>(at));
}

// Plans the next round for when the table has grown by as many as are used, kStep at least, so that a round costs
// little per family. Near the limit, after each half of the remaining room. So at most twice as many as used are there
// besides.
void FamilyTable::plan_next(size_t gone, uint32_t named, uint32_t foreign_named) {
  const auto next = [](uint32_t have, uint32_t step, uint32_t most) {
    const uint32_t left = most - std::min(have, most);
    return std::min(most, have + std::max(1U, std::min(step, left / 2)));
  };
  due_.store(next(size(), std::max(named, kStep), kMaxFamilies), std::memory_order_relaxed);
  foreign_due_ = next(foreign(), std::max(foreign_named, kForeignStep), kForeignFamilies);
  // At the limit only refusals start a round, after ever more of them.
  if (foreign() >= kForeignFamilies) foreign_due_ = UINT32_MAX;
  if (refusals_ >= refusals_due_) refusals_due_ = gone != 0 ? kForeignStep : std::min(refusals_due_ * 2, kMaxFamilies);
  refusals_ = 0;
  asked_soon_ = false;
}

std::vector<FamilyId> FamilyTable::give_back(const Named& named) {
  std::vector<FamilyId> gone;
  uint32_t in_use = 0;
  uint32_t foreign_in_use = 0;
  MutexLock lock(mutex_);
  for (size_t at = 0; kept_.load() == 0 && at < named.ids_.size(); ++at) {
    Row& row = rows_[at];
    if (row.id == kNoFamily || row.id != named.ids_[at]) continue;
    in_use += named.named_[at] ? 1 : 0;
    foreign_in_use += named.named_[at] && row.foreign ? 1 : 0;
    if (named.named_[at] || !row.unnamed) {
      row.unnamed = !named.named_[at];
      continue;
    }
    gone.push_back(row.id);
    drop(at);
  }
  plan_next(gone.size(), in_use, foreign_in_use);
  std::sort(gone.begin(), gone.end());
  return gone;
}

}  // namespace kvbm
