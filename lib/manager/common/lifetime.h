// Shared ownership of a whole manager, for its parts: work that is in flight keeps all of them alive, or learns that
// they are gone. Thread: any, after begin().
#pragma once

#include <memory>
#include <utility>

namespace kvbm::manager {

class Lifetime {
 public:
  // Set once, when the manager is made.
  void begin(std::weak_ptr<const void> whole) noexcept { whole_ = std::move(whole); }
  // Returns an owner of the whole manager; null while it is being destroyed.
  [[nodiscard]] std::shared_ptr<const void> keep() const noexcept { return whole_.lock(); }
  // Returns a part of the manager as an owner of all of it. While the manager is being destroyed it points to the part
  // and owns nothing, so no work may begin then. Callers are operations, nodes and tasks, which own the manager
  // themselves, and callbacks of tiers, of which none begins work after LowerTiers::shutdown or before all tiers are
  // open.
  template <class Part>
  [[nodiscard]] std::shared_ptr<Part> keep(Part& part) const noexcept {
    return std::shared_ptr<Part>(keep(), &part);
  }
  [[nodiscard]] std::weak_ptr<const void> watch() const noexcept { return whole_; }

 private:
  std::weak_ptr<const void> whole_;
};

}  // namespace kvbm::manager
