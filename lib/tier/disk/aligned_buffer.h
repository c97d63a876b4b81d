// Page-aligned memory for direct I/O without registered staging. Large buffers use huge pages: a device sees each small
// page as a separate piece, and virtio disks read into them at half the speed.
#pragma once

#include <sys/mman.h>

#include <cstddef>

#include "base/bytes.h"
#include "base/io/file.h"
#include "base/memory/aligned_bytes.h"

namespace kvbm::tier::disk {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // data() is null if there is no memory.
  explicit AlignedBuffer(uint64_t bytes) : bytes_(round_up(bytes, kIoAlign)), data_(allocate(bytes_)) {}
  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] uint64_t size() const noexcept { return bytes_; }
  [[nodiscard]] MutableBytes span() const noexcept { return {data_.get(), bytes_}; }

 private:
  static AlignedBytes allocate(uint64_t bytes) noexcept {
    constexpr uint64_t kHugePage = uint64_t{2} << 20;
    const uint64_t unit = bytes < kHugePage ? kIoAlign : kHugePage;
    AlignedBytes data = aligned_bytes(unit, bytes);
    if (data != nullptr && unit == kHugePage) (void)::madvise(data.get(), bytes, MADV_HUGEPAGE);
    return data;
  }
  uint64_t bytes_ = 0;
  AlignedBytes data_;
};

}  // namespace kvbm::tier::disk
