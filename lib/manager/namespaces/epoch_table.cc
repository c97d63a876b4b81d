#include "manager/namespaces/epoch_table.h"

#include <algorithm>

namespace kvbm::manager {

uint64_t EpochTable::epoch(const NamespaceId& base) const {
  const auto known = rows_.find(base);
  return known == rows_.end() ? 0 : known->second.epoch;
}

uint64_t EpochTable::floor(const NamespaceId& base) const {
  return floors_.empty() ? 0 : floors_[tier::epoch_floor_of(base)];
}

void EpochTable::raise_floor(const NamespaceId& base, uint64_t epoch) {
  if (floors_.empty()) floors_.resize(tier::kEpochFloors);
  uint64_t& floor = floors_[tier::epoch_floor_of(base)];
  floor = std::max(floor, epoch);
}

void EpochTable::load_floors(std::span<const uint64_t> floors) {
  if (floors.size() != tier::kEpochFloors) return;
  if (floors_.empty()) floors_.resize(tier::kEpochFloors);
  for (size_t i = 0; i < floors.size(); ++i) floors_[i] = std::max(floors_[i], floors[i]);
}

bool EpochTable::is_foreign(const NamespaceId& base) const {
  const auto known = rows_.find(base);
  return known != rows_.end() && known->second.foreign;
}

bool EpochTable::is_clean(const NamespaceId& base) const { return clean_.count(base) != 0; }

void EpochTable::note_clean(const NamespaceId& base, uint64_t epoch) {
  const auto known = rows_.find(base);
  if (known != rows_.end() && known->second.epoch == epoch) clean_.insert(base);
}

std::vector<tier::EpochRow> EpochTable::rows() const {
  std::vector<tier::EpochRow> out;
  out.reserve(rows_.size());
  for (const auto& [base, row] : rows_) out.push_back(row);
  std::sort(out.begin(), out.end(), [](const tier::EpochRow& a, const tier::EpochRow& b) {
    return a.foreign != b.foreign ? b.foreign : a.raised > b.raised;
  });
  return out;
}

// Replaces the row, which is not clean then.
void EpochTable::put(const tier::EpochRow& row) {
  erase(row.base);
  rows_[row.base] = row;
  if (row.foreign) by_age_[row.raised] = row.base;
}

void EpochTable::erase(const NamespaceId& base) {
  const auto known = rows_.find(base);
  if (known == rows_.end()) return;
  if (known->second.foreign) by_age_.erase(known->second.raised);
  rows_.erase(known);
  clean_.erase(base);
  unwritten_.erase(base);
}

// Gives each row a place of its own in the order, because two tiers number their rows independently.
void EpochTable::load(std::span<const tier::EpochRow> found) {
  std::vector<tier::EpochRow> rows(found.begin(), found.end());
  std::sort(rows.begin(), rows.end(), [](const tier::EpochRow& a, const tier::EpochRow& b) {
    return a.foreign != b.foreign ? b.foreign : a.raised < b.raised;
  });
  for (const tier::EpochRow& row : rows) {
    if (row.epoch == 0) continue;
    const auto known = rows_.find(row.base);
    const bool foreign = row.foreign && (known == rows_.end() || known->second.foreign);
    if (known == rows_.end() && (rows_.size() >= kRows || (foreign && by_age_.size() >= kForeignRows))) {
      if (!foreign) raise_floor(row.base, row.epoch);
      continue;
    }
    const uint64_t epoch = known == rows_.end() ? row.epoch : std::max(row.epoch, known->second.epoch);
    put({row.base, epoch, ++last_raised_, foreign});
  }
}

void EpochTable::own(const NamespaceId& base) {
  const auto known = rows_.find(base);
  if (known == rows_.end()) return;
  opened_.insert(base);
  if (!known->second.foreign) return;
  known->second.foreign = false;
  by_age_.erase(known->second.raised);
  unwritten_.insert(base);
}

bool EpochTable::choose(Plan& plan, bool foreign, Needed& needed) const {
  const auto goes = [&](const NamespaceId& base) {
    const auto is_it = [&](const tier::EpochRow& row) { return row.base == base; };
    return std::find(plan.forgotten.begin(), plan.forgotten.end(), base) == plan.forgotten.end() &&
           std::none_of(plan.rows.begin(), plan.rows.end(), is_it) && needed(base) == Need::nothing;
  };
  for (const auto& [raised, base] : by_age_) {
    if (!goes(base)) continue;
    plan.forgotten.push_back(base);
    return true;
  }
  if (foreign) return false;
  // Forgets all rows that nothing needs in one pass, because finding them is work.
  bool any = false;
  for (const auto& [base, row] : rows_) {
    if (row.foreign || !goes(base)) continue;
    plan.forgotten.push_back(base);
    any = true;
  }
  return any;
}

// Chooses the rows that were raised longest ago. A namespace that gets its row again starts at the epoch where it
// ended. Namespaces seldom share a floor: there are as many floors as rows.
bool EpochTable::choose_to_floor(Plan& plan, Needed& needed) const {
  const auto has = [](const auto& rows, const NamespaceId& base) {
    return std::any_of(rows.begin(), rows.end(), [&](const tier::EpochRow& row) { return row.base == base; });
  };
  std::vector<tier::EpochRow> oldest;
  for (const auto& [base, row] : rows_) {
    if (!row.foreign) oldest.push_back(row);
  }
  std::sort(oldest.begin(), oldest.end(),
            [](const tier::EpochRow& a, const tier::EpochRow& b) { return a.raised < b.raised; });
  size_t n = 0;
  for (const tier::EpochRow& row : oldest) {
    if (n == kToFloor) break;
    if (has(plan.rows, row.base) || has(plan.floored, row.base) || needed(row.base) == Need::row) continue;
    if (std::find(plan.forgotten.begin(), plan.forgotten.end(), row.base) != plan.forgotten.end()) continue;
    plan.floored.push_back(row);
    ++n;
  }
  return n != 0;
}

Code EpochTable::raise(Plan& plan, const NamespaceId& base, uint64_t epoch, bool foreign, Needed& needed, bool& added) {
  const auto again =
      std::find_if(plan.rows.begin(), plan.rows.end(), [&](const tier::EpochRow& row) { return row.base == base; });
  added = false;
  if (again != plan.rows.end()) {
    again->epoch = std::max(again->epoch, epoch);
    return Code::ok;
  }
  const auto known = rows_.find(base);
  const uint64_t raised = last_raised_ + plan.rows.size() + 1;
  if (known != rows_.end()) {
    plan.rows.push_back({base, epoch, raised, foreign && known->second.foreign});
    return Code::ok;
  }
  size_t size = rows_.size();
  size_t strangers = by_age_.size();
  for (const tier::EpochRow& row : plan.rows) {
    if (rows_.count(row.base) != 0) continue;
    ++size;
    strangers += row.foreign ? 1 : 0;
  }
  for (const NamespaceId& gone : plan.forgotten) {
    --size;
    strangers -= rows_.at(gone).foreign ? 1 : 0;
  }
  size -= plan.floored.size();
  const bool full = size >= kRows || (foreign && strangers >= kForeignRows);
  if (full && !choose(plan, foreign, needed) && (foreign || !choose_to_floor(plan, needed))) return Code::at_limit;
  plan.rows.push_back({base, epoch, raised, foreign});
  added = true;
  return Code::ok;
}

void EpochTable::add_unwritten(Plan& plan) const {
  for (const NamespaceId& base : unwritten_) {
    const auto is_it = [&base = base](const tier::EpochRow& row) { return row.base == base; };
    if (std::any_of(plan.rows.begin(), plan.rows.end(), is_it)) continue;
    if (std::find(plan.forgotten.begin(), plan.forgotten.end(), base) != plan.forgotten.end()) continue;
    if (std::any_of(plan.floored.begin(), plan.floored.end(), is_it)) continue;
    plan.rows.push_back(rows_.at(base));
  }
}

void EpochTable::commit(const Plan& plan) {
  for (const NamespaceId& base : plan.forgotten) {
    if (opened_.count(base) == 0) {
      erase(base);
    } else {
      unwritten_.insert(base);
    }
  }
  for (const tier::EpochRow& row : plan.floored) {
    raise_floor(row.base, row.epoch);
    if (opened_.count(row.base) == 0) {
      erase(row.base);
    } else {
      unwritten_.insert(row.base);
    }
  }
  for (const tier::EpochRow& row : plan.rows) {
    // A handle may have been opened since the plan was made.
    const auto known = rows_.find(row.base);
    const bool owned = known != rows_.end() && !known->second.foreign;
    put({row.base, row.epoch, row.raised, row.foreign && !owned});
    if (row.foreign && owned) unwritten_.insert(row.base);
    last_raised_ = std::max(last_raised_, row.raised);
  }
}

}  // namespace kvbm::manager
