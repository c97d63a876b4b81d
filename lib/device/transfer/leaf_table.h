// Leaves of one part of a cache, described once: where each lies in block 0, and its distance to the next block. So a
// batch names many leaves of a block by one LeafMove, and a kernel's job for each leaf is that of block 0 with an
// address added.
//
// Thread: one while it is filled, any afterwards. Budget: job() copies 64 bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "device/kernels/leaf_job.h"

namespace kvbm::device {

class LeafTable {
 public:
  // Adds the next leaf in the record's order: its run in block 0 and in block 1, and its offset in the record.
  void add(const StridedRun& block0, const StridedRun& block1, uint32_t offset, uint32_t layer, uint32_t unit);
  // Completes the table after all leaves were added.
  void finish();

  [[nodiscard]] uint32_t size() const noexcept { return static_cast<uint32_t>(facts_.size()); }
  [[nodiscard]] uint32_t offset(uint32_t leaf) const noexcept { return facts_[leaf].offset; }
  [[nodiscard]] uint32_t bytes(uint32_t leaf) const noexcept { return facts_[leaf].bytes; }
  [[nodiscard]] uint32_t layer(uint32_t leaf) const noexcept { return facts_[leaf].layer; }
  [[nodiscard]] uint32_t unit(uint32_t leaf) const noexcept { return facts_[leaf].unit; }
  // Returns the size of [first, last), which is contiguous in the record if it lies within group_end(first).
  [[nodiscard]] uint64_t bytes(uint32_t first, uint32_t last) const noexcept {
    return uint64_t{facts_[last - 1].offset} + facts_[last - 1].bytes - facts_[first].offset;
  }
  // Returns the end of the leaves that may be named together with `first`: of one unit, contiguous in the record, at
  // most kMostBytes and kMostLeaves. They are either contiguous in a block, or contain no piece that a copy engine
  // would move on its own.
  [[nodiscard]] uint32_t group_end(uint32_t first) const noexcept { return facts_[first].group_end; }
  // Returns whether [first, last) is one piece in a block.
  [[nodiscard]] bool is_flat(uint32_t first, uint32_t last) const noexcept { return last <= facts_[first].flat_end; }
  // Returns the job of a leaf of the block, with no record and no expected hash.
  [[nodiscard]] LeafJob job(uint32_t leaf, uint32_t block) const noexcept {
    LeafJob out = jobs_[leaf];
    out.run.address += static_cast<uint64_t>(int64_t{block} * facts_[leaf].block_stride);
    return out;
  }
  [[nodiscard]] StridedRun run(uint32_t leaf, uint32_t block) const noexcept;

  static constexpr uint32_t kMostLeaves = 64;
  static constexpr uint64_t kMostBytes = 256ULL << 10;

 private:
  struct Facts {
    uint32_t offset, bytes, layer, unit;
    uint32_t group_end;
    uint32_t flat_end;
    int64_t block_stride;
  };
  [[nodiscard]] bool follows_on_device(uint32_t leaf) const noexcept;

  std::vector<LeafJob> jobs_;  // of block 0
  std::vector<Facts> facts_;
  std::vector<StridedRun> runs_;  // of block 0
};

}  // namespace kvbm::device
