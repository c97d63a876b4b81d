// Rows for the next index object of this process, beside its packs: what was erased, and epochs that were raised.
//
// Bounded, because a store may take packs and no index objects for any time, and an index object of more than
// kMaxIndexBytes would never be read. A record has one row for each erasure, a family and a namespace one row in all.
// Lock: the owner's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tier/store/store_format.h"

namespace kvbm::tier::store {

class UnpublishedRows {
 public:
  static constexpr size_t kMaxErased = 1'000'000;
  static constexpr size_t kMaxFamilies = 65'536;
  static constexpr size_t kMaxEpochs = 131'072;
  // Size of these rows in an index object, at most.
  static constexpr size_t kMaxBytes =
      kMaxErased * kNameRowBytes + kMaxFamilies * kFamilyRowBytes + kMaxEpochs * kEpochRowBytes;

  [[nodiscard]] bool empty() const noexcept { return erased_.empty() && families_.empty() && epochs_.empty(); }
  // The next three return false if there is no place for the row: it is left out.
  bool erase(const RecordName& name) {
    if (erased_.size() >= kMaxErased) return false;
    erased_.push_back(name);
    return true;
  }
  bool erase_family(uint64_t family, uint64_t until_ms) { return raise(families_, kMaxFamilies, family, until_ms); }
  bool raise_epoch(const NamespaceId& base, uint64_t epoch) { return raise(epochs_, kMaxEpochs, base, epoch); }
  // Adds all rows of `other`. Returns false if some are left out.
  bool add(const UnpublishedRows& other) {
    const size_t n = std::min(other.erased_.size(), kMaxErased - erased_.size());
    bool all = n == other.erased_.size();
    erased_.insert(erased_.end(), other.erased_.begin(), other.erased_.begin() + static_cast<std::ptrdiff_t>(n));
    for (const auto& [family, until_ms] : other.families_) all = erase_family(family, until_ms) && all;
    for (const auto& [base, epoch] : other.epochs_) all = raise_epoch(base, epoch) && all;
    return all;
  }
  void write_to(IndexObject& index) const {
    index.erased = erased_;
    for (const auto& [family, until_ms] : families_) index.families.push_back({family, until_ms});
    for (const auto& [base, epoch] : epochs_) index.epochs.push_back({base, epoch});
  }

 private:
  template <class Key>
  static bool raise(std::map<Key, uint64_t>& rows, size_t most, const Key& key, uint64_t value) {
    const auto at = rows.find(key);
    if (at == rows.end() && rows.size() >= most) return false;
    uint64_t& known = at == rows.end() ? rows[key] : at->second;
    known = std::max(known, value);
    return true;
  }

  std::vector<RecordName> erased_;
  std::map<uint64_t, uint64_t> families_;   // until ms, by tag
  std::map<NamespaceId, uint64_t> epochs_;  // by the id of epoch 0
};

}  // namespace kvbm::tier::store
