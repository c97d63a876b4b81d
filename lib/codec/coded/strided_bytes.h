// Strided runs of memory, one after the other, as one sequence of bytes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace kvbm::codec {

class StridedBytes {
 public:
  // Runs of at least one byte each.
  explicit StridedBytes(std::vector<StridedRun> runs) : runs_(std::move(runs)) {
    for (const StridedRun& run : runs_) bytes_ += run.total();
  }
  [[nodiscard]] const std::vector<StridedRun>& runs() const noexcept { return runs_; }
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::vector<StridedRun> runs_;
  uint64_t bytes_ = 0;
};

}  // namespace kvbm::codec
