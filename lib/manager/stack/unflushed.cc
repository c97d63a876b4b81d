#include "manager/stack/unflushed.h"

#include <utility>

#include "base/thread/memory_wait.h"

namespace kvbm::manager {

void Unflushed::begin(std::function<void()> on_many) {
  on_many_ = std::move(on_many);
  wanted_.store(true, std::memory_order_relaxed);
}

void Unflushed::stored(std::span<const Identity> ids) {
  const MemoryWait no_error_path;  // the blocks are stored, so this must not fail
  bool many = false;
  {
    MutexLock lock(mutex_);
    for (const Identity& id : ids) {
      ++last_;
      if (const auto known = numbers_.find(id); known != numbers_.end()) {
        known->second = last_;
      } else if (numbers_.size() < kMost) {
        numbers_.emplace(id, last_);
      } else {
        lost_ = true;
      }
    }
    many = last_ - looked_ >= kMany;
    if (many) looked_ = last_;
  }
  if (many) on_many_();
}

void Unflushed::forget(std::span<const Identity> ids) {
  MutexLock lock(mutex_);
  for (const Identity& id : ids) numbers_.erase(id);
}

void Unflushed::forget(FamilyId family) {
  MutexLock lock(mutex_);
  std::erase_if(numbers_, [family](const auto& one) { return one.first.family == family; });
}

void Unflushed::add_to(FamilyTable::Named& named) const {
  MutexLock lock(mutex_);
  for (const auto& [id, number] : numbers_) named.add(id.family);
}

void Unflushed::forget_all() {
  MutexLock lock(mutex_);
  numbers_.clear();
  lost_ = false;  // blocks beyond kMost were erased too
}

std::vector<Unflushed::Entry> Unflushed::all(bool& lost) {
  std::vector<Entry> out;
  MutexLock lock(mutex_);
  out.reserve(numbers_.size());
  for (const auto& [id, number] : numbers_) out.push_back({id, number});
  lost = std::exchange(lost_, false);
  looked_ = last_;
  return out;
}

bool Unflushed::remove_reported(const Entry& entry) {
  MutexLock lock(mutex_);
  const auto known = numbers_.find(entry.id);
  if (known == numbers_.end() || known->second != entry.number) return false;
  numbers_.erase(known);
  return true;
}

bool Unflushed::has(const Entry& entry) const {
  MutexLock lock(mutex_);
  const auto known = numbers_.find(entry.id);
  return known != numbers_.end() && known->second == entry.number;
}

}  // namespace kvbm::manager
