#include "manager/lower/coding_terms.h"

#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "codec/leaf/frame.h"

namespace kvbm::manager {

codec::RecordForm form_of(const layout::RecordShape& shape) noexcept {
  codec::RecordForm form;
  form.planes = shape.planes();
  form.leaves_per_plane = shape.units() * shape.leaves_per_unit();
  form.first_layer = shape.shard().first_layer;
  if (shape.kind() == layout::ComponentKind::state) return form;  // bytes of any kind
  form.element = static_cast<codec::Element>(shape.element());
  form.row = shape.row_bytes() / static_cast<uint32_t>(codec::element_bytes(form.element));
  form.rows = shape.tokens_per_piece() != 0 && shape.pieces() > 1 ? shape.tokens_per_piece() : shape.tokens();
  return form;
}

std::shared_ptr<const void> CodingTerms::join(const NamespaceId& base_id, Wish wish) {
  std::list<Wish>::iterator at;
  {
    MutexLock lock(mutex_);
    std::list<Wish>& open = spaces_[base_id].open;
    at = open.insert(open.end(), std::move(wish));
  }
  const std::shared_ptr<const void> handle(static_cast<const void*>(this),
                                           [terms = weak_from_this(), base_id, at](const void*) {
                                             if (const auto alive = terms.lock()) alive->leave(base_id, at);
                                           });
  MutexLock lock(mutex_);
  decide(spaces_[base_id]);
  return handle;
}

void CodingTerms::leave(const NamespaceId& base_id, std::list<Wish>::iterator wish) {
  const MemoryWait no_error_path;  // runs in a handle's destructor
  MutexLock lock(mutex_);
  Space& space = spaces_[base_id];
  space.open.erase(wish);
  if (space.open.empty() && space.families.empty()) {
    spaces_.erase(base_id);
    return;
  }
  decide(space);
}

void CodingTerms::decide(Space& space) {
  const auto lossy = [](const Wish& w) { return w.recipe.has_value() && w.recipe->lossy(); };
  space.allow_lossy = std::any_of(space.open.begin(), space.open.end(), [](const Wish& w) { return w.allow_lossy; });
  if (!space.open.empty()) {
    const bool all =
        std::all_of(space.open.begin(), space.open.end(), [&](const Wish& w) { return w.allow_lossy || lossy(w); });
    space.recipe = {};
    for (const Wish& wish : space.open) {
      if (wish.recipe.has_value() && (all || !wish.recipe->lossy())) space.recipe = *wish.recipe;
    }
  }
  for (const FamilyId family : space.families) apply(space, family);
}

void CodingTerms::apply(const Space& space, FamilyId family) {
  Known& known = terms_[family];
  auto terms = std::make_shared<tier::coded::FamilyTerms>(*known.terms);
  terms->recipe = space.recipe;
  terms->allow_lossy = space.allow_lossy;
  known.terms = std::move(terms);
}

void CodingTerms::add(const NamespaceId& base_id, FamilyId family, const std::optional<layout::RecordShape>& shape,
                      uint32_t model_layers) {
  MutexLock lock(mutex_);
  Space& space = spaces_[base_id];
  Known& known = terms_[family];
  if (known.terms == nullptr) {
    auto terms = std::make_shared<tier::coded::FamilyTerms>();
    if (shape.has_value()) {
      terms->form = form_of(*shape);
      terms->form.layers = model_layers;
      terms->plain_bytes = shape->payload_bytes();
    }
    known = {base_id, std::move(terms)};
    space.families.insert(family);
  }
  apply(space, family);
}

void CodingTerms::forget_families(std::span<const FamilyId> gone) {
  MutexLock lock(mutex_);
  for (const FamilyId family : gone) {
    const auto known = terms_.find(family);
    if (known == terms_.end()) continue;
    const auto space = spaces_.find(known->second.base_id);
    terms_.erase(known);
    if (space == spaces_.end()) continue;
    space->second.families.erase(family);
    if (space->second.open.empty() && space->second.families.empty()) spaces_.erase(space);
  }
}

size_t CodingTerms::namespaces() const {
  MutexLock lock(mutex_);
  return spaces_.size();
}

std::shared_ptr<const tier::coded::FamilyTerms> CodingTerms::of(FamilyId family) const {
  MutexLock lock(mutex_);
  const auto known = terms_.find(family);
  return known == terms_.end() ? nullptr : known->second.terms;
}

}  // namespace kvbm::manager
