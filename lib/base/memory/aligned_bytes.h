// Memory of the system at an alignment, for direct I/O and vector code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/bytes.h"

namespace kvbm {

struct FreeAligned {
  void operator()(std::byte* p) const noexcept { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte, FreeAligned>;

// Returns at least `bytes` bytes; null if the system has none. `alignment`: a power of two.
[[nodiscard]] inline AlignedBytes aligned_bytes(size_t alignment, uint64_t bytes) noexcept {
  return AlignedBytes(static_cast<std::byte*>(std::aligned_alloc(alignment, round_up(bytes, alignment))));
}

}  // namespace kvbm
