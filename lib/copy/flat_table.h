// A hash table from 64-bit names to small values: open addressing, linear probing, no allocation while it does not
// grow. For names that this process generates (tokens, tags, peers): the order of slots never affects behaviour, and no
// attacker can choose names that collide. Not thread-safe. Budget: about 10 ns a call, 3/4 full at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvbm::copy {

template <class V>
class FlatTable {
 public:
  [[nodiscard]] size_t size() const noexcept { return count_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

  // Returns the value, valid until the next insert or erase; null if there is none.
  [[nodiscard]] V* find(uint64_t name) noexcept {
    if (slots_.empty()) return nullptr;
    for (size_t at = home(name);; at = next(at)) {
      if (!slots_[at].used) return nullptr;
      if (slots_[at].name == name) return &slots_[at].value;
    }
  }
  // Returns false, and changes nothing, if the name is there already.
  bool insert(uint64_t name, V value) {
    if (find(name) != nullptr) return false;
    if ((count_ + 1) * 4 > slots_.size() * 3) grow();
    place(name, std::move(value));
    ++count_;
    return true;
  }
  bool erase(uint64_t name) noexcept {
    if (slots_.empty()) return false;
    size_t at = home(name);
    while (slots_[at].used && slots_[at].name != name) at = next(at);
    if (!slots_[at].used) return false;
    --count_;
    // Entries that probed past this slot move back, so that no probe ends early (Knuth, TAOCP 3, 6.4, algorithm R).
    for (size_t hole = at;;) {
      slots_[hole] = Slot{};
      size_t from = hole;
      do {
        from = next(from);
        if (!slots_[from].used) return true;
      } while (between(hole, home(slots_[from].name), from));
      slots_[hole] = std::move(slots_[from]);
      hole = from;
    }
  }
  void clear() noexcept {
    slots_.clear();
    count_ = 0;
  }
  // Visits in no order: sort before you act on it.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (Slot& slot : slots_) {
      if (slot.used) visit(slot.name, slot.value);
    }
  }

 private:
  struct Slot {
    uint64_t name = 0;
    V value{};
    bool used = false;
  };
  // Fibonacci hashing: places neighbouring names far apart.
  [[nodiscard]] size_t home(uint64_t name) const noexcept {
    return static_cast<size_t>((name * 0x9E3779B97F4A7C15ULL) >> 32) & (slots_.size() - 1);
  }
  [[nodiscard]] size_t next(size_t at) const noexcept { return (at + 1) & (slots_.size() - 1); }
  // True if `at` lies in (hole, from], going round.
  [[nodiscard]] static bool between(size_t hole, size_t at, size_t from) noexcept {
    return hole < from ? (hole < at && at <= from) : (hole < at || at <= from);
  }
  void place(uint64_t name, V value) noexcept {
    size_t at = home(name);
    while (slots_[at].used) at = next(at);
    slots_[at] = Slot{name, std::move(value), true};
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
    old.swap(slots_);
    for (Slot& slot : old) {
      if (slot.used) place(slot.name, std::move(slot.value));
    }
  }

  std::vector<Slot> slots_;  // a power of two, or empty
  size_t count_ = 0;
};

}  // namespace kvbm::copy
