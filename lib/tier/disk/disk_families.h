// Maps the families of a disk's records to the 16-bit numbers that index entries hold: an entry has no space for the 32
// bits of a FamilyId. Counts the records of each family. So a number is reused only when no entry has it any more, and
// the families on a disk are known without a look at every record.
// Lock: the owner's. Budget: no allocation but for a family's first record.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/family/family_cell.h"
#include "base/ids.h"

namespace kvbm::tier::disk {

class DiskFamilies {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // `number` must be that of an existing entry.
  [[nodiscard]] FamilyId at(uint16_t number) const noexcept { return rows_[number].family; }
  // kNone: the family has no record.
  [[nodiscard]] uint32_t number_of(FamilyId family) const {
    const auto known = numbers_.find(family);
    return known == numbers_.end() ? kNone : known->second;
  }
  [[nodiscard]] uint32_t records(FamilyId family) const {
    const uint32_t number = number_of(family);
    return number == kNone ? 0 : rows_[number].records;
  }
  // Returns the family's number, and counts one more record; kNone: 65,536 families have records.
  uint32_t take(FamilyId family) {
    if (last_ < rows_.size() && rows_[last_].records != 0 && rows_[last_].family == family) {
      ++rows_[last_].records;
      return last_;
    }
    const auto known = numbers_.find(family);
    if (known != numbers_.end()) {
      last_ = known->second;
    } else {
      if (free_.empty() && rows_.size() > UINT16_MAX) return kNone;
      if (free_.empty()) {
        if (rows_.size() == rows_.capacity()) rows_.reserve(2 * rows_.size() + 16);
        free_.reserve(rows_.capacity());  // drop() finds room for every number
        free_.push_back(static_cast<uint16_t>(rows_.size()));
        rows_.emplace_back();
      }
      last_ = free_.back();
      numbers_.emplace(family, static_cast<uint16_t>(last_));
      free_.pop_back();
      rows_[last_] = {family, 0};
    }
    ++rows_[last_].records;
    return last_;
  }
  // Counts one record less.
  void drop(uint16_t number) noexcept {
    Row& row = rows_[number];
    if (--row.records != 0) return;
    numbers_.erase(row.family);
    free_.push_back(number);
  }
  // Calls f(family) for each family that has a record.
  template <class F>
  void each(F&& f) const {
    for (const Row& row : rows_) {
      if (row.records != 0) f(row.family);
    }
  }
  [[nodiscard]] uint64_t bytes() const noexcept {
    return rows_.capacity() * sizeof(Row) + free_.capacity() * sizeof(uint16_t) +
           numbers_.size() * (sizeof(FamilyId) + sizeof(uint16_t) + 3 * sizeof(void*));
  }

 private:
  struct Row {
    FamilyId family = kNoFamily;
    uint32_t records = 0;
  };
  std::vector<Row> rows_;
  std::vector<uint16_t> free_;
  std::unordered_map<FamilyId, uint16_t> numbers_;  // looked up, never walked
  uint32_t last_ = kNone;
};

}  // namespace kvbm::tier::disk
