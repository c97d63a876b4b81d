#include "tier/coded/staging.h"

#include <utility>

namespace kvbm::tier::coded {

std::optional<Staging::Buffer> Staging::take(uint64_t bytes) {
  const uint64_t want = round_up(bytes, kStep);
  if (in_use_ != 0 && in_use_ + want > budget_) return std::nullopt;
  // The smallest buffer that fits and wastes less than half of itself.
  size_t best = free_.size();
  for (size_t i = 0; i < free_.size(); ++i) {
    const uint64_t size = free_[i].size();
    if (size >= want && size <= 2 * want && (best == free_.size() || size < free_[best].size())) best = i;
  }
  if (best != free_.size()) {
    Buffer found = std::move(free_[best]);
    if (best + 1 != free_.size()) free_[best] = std::move(free_.back());
    free_.pop_back();
    kept_ -= found.size();
    in_use_ += found.size();
    return found;
  }
  make_room(want);
  Buffer made(want);
  if (made.data() == nullptr) {
    if (in_use_ != 0) return std::nullopt;
    return Buffer();
  }
  in_use_ += made.size();
  return made;
}

void Staging::give(Buffer buffer) {
  if (buffer.data() == nullptr) return;
  in_use_ -= buffer.size();
  if (in_use_ + kept_ + buffer.size() > budget_) return;
  kept_ += buffer.size();
  free_.push_back(std::move(buffer));
}

// Frees kept buffers until `bytes` more fit within the budget.
void Staging::make_room(uint64_t bytes) {
  while (!free_.empty() && in_use_ + kept_ + bytes > budget_) {
    kept_ -= free_.back().size();
    free_.pop_back();
  }
}

}  // namespace kvbm::tier::coded
