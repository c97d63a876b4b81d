// Page-aligned memory for direct I/O where no registered staging is at hand.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/bytes.h"
#include "base/file.h"

namespace kvbm::tier::disk {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // data() is null if there is no memory.
  explicit AlignedBuffer(uint64_t bytes)
      : bytes_(round_up(bytes, kIoAlign)), data_(static_cast<std::byte*>(std::aligned_alloc(kIoAlign, bytes_))) {}
  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] uint64_t size() const noexcept { return bytes_; }
  [[nodiscard]] MutableBytes span() const noexcept { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };
  uint64_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace kvbm::tier::disk
