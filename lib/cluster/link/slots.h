// Table of objects with ids that are never reused while the table lives: an index and a generation. Freed places are
// reused, so a steady load does not allocate. Iteration is in the order of places: deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kvbm::cluster {

template <class T>
class Slots {
 public:
  // Adds a value. Ids are below 2^62 and never 0.
  uint64_t add(T value) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    Slot& slot = slots_[index];
    slot.generation = (slot.generation + 1) & 0x3FFFFFFF;
    slot.value.emplace(std::move(value));
    ++size_;
    return (static_cast<uint64_t>(slot.generation) << 32) | (index + 1);
  }
  [[nodiscard]] T* get(uint64_t id) noexcept {
    const uint64_t index = (id & UINT32_MAX) - 1;
    if (index >= slots_.size() || slots_[index].generation != id >> 32 || !slots_[index].value.has_value())
      return nullptr;
    return &*slots_[index].value;
  }
  // Removes a value; the id must be valid.
  void remove(uint64_t id) {
    const auto index = static_cast<uint32_t>((id & UINT32_MAX) - 1);
    slots_[index].value.reset();
    free_.push_back(index);
    --size_;
  }
  [[nodiscard]] size_t size() const noexcept { return size_; }
  // Calls fn(id, value); fn may remove that value, and must not add any.
  template <class Fn>
  void each(Fn fn) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].value.has_value())
        fn((static_cast<uint64_t>(slots_[i].generation) << 32) | (i + 1), *slots_[i].value);
    }
  }

 private:
  struct Slot {
    uint32_t generation = 0;
    std::optional<T> value;
  };
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  size_t size_ = 0;
};

}  // namespace kvbm::cluster
