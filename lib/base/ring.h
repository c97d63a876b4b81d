// A first-in first-out ring that grows by doubling and never shrinks, so that a steady load does not allocate. Elements
// are numbered without end, so that one in the middle can be found by its number. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvbm {

template <class T>
class Ring {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == tail_; }
  [[nodiscard]] size_t size() const noexcept { return static_cast<size_t>(tail_ - head_); }
  // Number of the first element, and the number that the next push() gets.
  [[nodiscard]] uint64_t first() const noexcept { return head_; }
  [[nodiscard]] uint64_t end() const noexcept { return tail_; }
  // The number must be in [first(), end()).
  [[nodiscard]] T& at(uint64_t number) noexcept { return slots_[number & (slots_.size() - 1)]; }
  [[nodiscard]] T& front() noexcept { return at(head_); }

  // Makes room for n more without an allocation.
  void reserve(size_t n) {
    size_t wanted = slots_.empty() ? 16 : slots_.size();
    while (wanted < size() + n) wanted *= 2;
    if (wanted == slots_.size()) return;
    std::vector<T> larger(wanted);
    for (uint64_t i = head_; i != tail_; ++i) larger[i & (wanted - 1)] = std::move(at(i));
    slots_.swap(larger);
  }
  uint64_t push(T value) {
    reserve(1);
    at(tail_) = std::move(value);
    return tail_++;
  }
  // The ring must not be empty.
  T pop() noexcept {
    T value = std::move(at(head_));
    ++head_;
    return value;
  }

 private:
  std::vector<T> slots_;  // a power of two, or empty
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

}  // namespace kvbm
