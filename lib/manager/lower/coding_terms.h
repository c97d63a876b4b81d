// Coding parameters of each family's records, and what the open handles of its namespace ask for.
//
// Handles of one namespace may differ. Its records have one form below the host, so the rule is the safe one.
// Written: by the recipe of the handle that was opened last with one. A lossy recipe is used only while every open
// handle reads or writes lossy records too; else the last lossless recipe, or the tier's own coding. Read: lossy
// records are read up while any open handle allows them. They keep their flag in the host, where lookups and loads
// check it against their own handle. After the last handle is closed, the last decision stays valid as long as the
// namespace has families, except that no lossy record is read. Thread: any. Lock: mutex_, a leaf, taken once a
// record.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "base/ids.h"
#include "base/thread/mutex.h"
#include "codec/coded/coded_record.h"
#include "layout/record_shape.h"
#include "tier/coded/coded_tier.h"

namespace kvbm::manager {

class CodingTerms : public std::enable_shared_from_this<CodingTerms> {
 public:
  struct Wish {
    std::optional<codec::Recipe> recipe;
    bool allow_lossy = false;
  };
  // Counts a namespace handle as open for the lifetime of the returned object.
  std::shared_ptr<const void> join(const NamespaceId& base_id, Wish wish);
  // Adds a family of the namespace. No shape: the family's records are opaque bytes. `model_layers` counts the whole
  // model; 0: not known.
  void add(const NamespaceId& base_id, FamilyId family, const std::optional<layout::RecordShape>& shape,
           uint32_t model_layers = 0);
  // Removes family ids that are no longer valid.
  void forget_families(std::span<const FamilyId> gone);
  // Returns null if the family was never added.
  [[nodiscard]] std::shared_ptr<const tier::coded::FamilyTerms> of(FamilyId family) const;
  [[nodiscard]] size_t namespaces() const;

 private:
  struct Space {
    std::list<Wish> open;  // in the order of opening
    codec::Recipe recipe;
    bool allow_lossy = false;
    std::set<FamilyId> families;
  };
  struct Known {
    NamespaceId base_id;
    std::shared_ptr<const tier::coded::FamilyTerms> terms;
  };
  void leave(const NamespaceId& base_id, std::list<Wish>::iterator wish);
  void decide(Space& space) KVBM_REQUIRES(mutex_);
  void apply(const Space& space, FamilyId family) KVBM_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<NamespaceId, Space> spaces_ KVBM_GUARDED_BY(mutex_);
  std::map<FamilyId, Known> terms_ KVBM_GUARDED_BY(mutex_);
};

// Returns the form of a shape's records, for coders.
codec::RecordForm form_of(const layout::RecordShape& shape) noexcept;

}  // namespace kvbm::manager
