// An array of zeroes that takes memory page by page, as it is used. So an array that is sized for the largest process
// costs a small one, and its start, nothing. The system provides and reclaims the memory; a page is faulted in at its
// first use.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace kvbm {

// Zeroes mapped by the system; if it maps none, from the heap, which fails as for every container.
class ZeroedMemory {
 public:
  ZeroedMemory(size_t count, size_t each);
  ~ZeroedMemory();
  ZeroedMemory(const ZeroedMemory&) = delete;
  ZeroedMemory& operator=(const ZeroedMemory&) = delete;
  [[nodiscard]] void* data() const noexcept { return data_; }  // aligned to a cache line; null if empty
  [[nodiscard]] size_t bytes() const noexcept { return bytes_; }

 private:
  size_t bytes_ = 0;
  bool mapped_ = false;
  void* data_ = nullptr;
};

template <class T>
class ZeroedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> && alignof(T) <= 64);

 public:
  explicit ZeroedArray(size_t size) : memory_(size, sizeof(T)), size_(size) {}
  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] size_t bytes() const noexcept { return memory_.bytes(); }
  [[nodiscard]] std::span<T> all() noexcept { return {static_cast<T*>(memory_.data()), size_}; }
  [[nodiscard]] T& operator[](size_t i) noexcept { return static_cast<T*>(memory_.data())[i]; }
  [[nodiscard]] const T& operator[](size_t i) const noexcept { return static_cast<const T*>(memory_.data())[i]; }

 private:
  ZeroedMemory memory_;
  size_t size_;
};

}  // namespace kvbm
