// What coding must know of each family's records: their form, and what their namespace allows.
//
// Filled where namespaces are planned, read wherever a record is coded or decoded. A family that nobody has said
// anything of has records of unknown bytes, that are coded without loss.
// Thread: any. Lock: mutex_, a leaf, taken once a record.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "base/ids.h"
#include "base/mutex.h"
#include "codec/coded_record.h"
#include "codec/leaf_form.h"

namespace kvbm::codec {

struct CodingFacts {
  RecordForm form;
  std::shared_ptr<const Recipe> recipe;  // of the namespace, may be lossy; null: none
  bool allow_lossy = false;              // its readers take lossy records
};

class FamilyCoding {
 public:
  void set(FamilyId family, CodingFacts facts) KVBM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    facts_[family] = std::move(facts);
  }
  [[nodiscard]] CodingFacts get(FamilyId family) const KVBM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto known = facts_.find(family);
    return known == facts_.end() ? CodingFacts{} : known->second;
  }

 private:
  mutable Mutex mutex_;
  std::map<FamilyId, CodingFacts> facts_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::codec
