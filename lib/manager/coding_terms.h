// What coding must know of each family's records, and what the open handles of its namespace ask for.
//
// Handles of one namespace may differ. Its records have one form below the host, so the rule is the safe one:
//   written: by the recipe of the handle that was opened last with one; a recipe that loses something only while every
//     open handle reads or writes lossy records too, else by the last recipe that loses nothing, or as the tier codes;
//   read: lossy records come up while any open handle allows them, and keep their flag in the host, where lookups and
//     loads of each handle ask for its own.
// What was decided last holds on when the last handle goes, but that nothing lossy is read; as long as there are families.
// Thread: any. Lock: mutex_, a leaf, taken once a record.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "base/ids.h"
#include "base/mutex.h"
#include "codec/coded_record.h"
#include "layout/record_shape.h"
#include "tier/coded/coded_tier.h"

namespace kvbm::manager {

class CodingTerms : public std::enable_shared_from_this<CodingTerms> {
 public:
  struct Wish {
    std::optional<codec::Recipe> recipe;
    bool allow_lossy = false;
  };
  // A handle of a namespace is open for as long as what this gives is kept.
  std::shared_ptr<const void> join(const NamespaceId& base_id, Wish wish);
  // A family of that namespace; no shape: opaque. Layers are those of the whole model; 0: not known.
  void add(const NamespaceId& base_id, FamilyId family, const std::optional<layout::RecordShape>& shape,
           uint32_t model_layers = 0);
  // These ids mean nothing any more.
  void forget_families(std::span<const FamilyId> gone);
  // Null: nobody has said anything of it.
  [[nodiscard]] std::shared_ptr<const tier::coded::FamilyTerms> of(FamilyId family) const;
  [[nodiscard]] size_t namespaces() const;

 private:
  struct Space {
    std::list<Wish> open;  // in the order they were opened
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

// How the records of a shape are formed, for coders.
codec::RecordForm form_of(const layout::RecordShape& shape) noexcept;

}  // namespace kvbm::manager
