// A record that was read from a disk into device memory: its head is in host memory, its payload in device memory.
#pragma once

#include <cstdlib>
#include <memory>

#include "base/bytes.h"
#include "base/io/file.h"
#include "device/storage/storage_reads.h"
#include "manager/operation/load.h"

namespace kvbm::manager {

struct LoadOperation::StorageLanding {
  struct Free {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };
  explicit StorageLanding(uint64_t most_head_bytes)
      : head_room(round_up(most_head_bytes, kIoAlign)),
        head(static_cast<std::byte*>(std::aligned_alloc(kIoAlign, head_room))) {}
  [[nodiscard]] ConstBytes bytes() const noexcept { return {head.get(), head_bytes}; }

  const uint64_t head_room;
  const std::unique_ptr<std::byte, Free> head;
  uint32_t head_bytes = 0;
  device::StorageReads::Piece piece;
};

}  // namespace kvbm::manager
