// The leaves of one part of a cache, described once: where each lies in block 0, and how much further on in the next block. So a
// batch names many leaves of a block by one LeafMove, and what a kernel is told of each is a template with an address added.
//
// Thread: one while it is made, any afterwards. Budget: job() copies 64 bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "device/kernels/leaf_job.h"

namespace kvbm::device {

class LeafTable {
 public:
  // The next leaf in the record's order: its run in block 0 and in block 1, and its offset in the record.
  void add(const StridedRun& block0, const StridedRun& block1, uint32_t offset, uint32_t layer, uint32_t unit);
  // All leaves were added.
  void finish();

  [[nodiscard]] uint32_t size() const noexcept { return static_cast<uint32_t>(facts_.size()); }
  [[nodiscard]] uint32_t offset(uint32_t leaf) const noexcept { return facts_[leaf].offset; }
  [[nodiscard]] uint32_t bytes(uint32_t leaf) const noexcept { return facts_[leaf].bytes; }
  [[nodiscard]] uint32_t layer(uint32_t leaf) const noexcept { return facts_[leaf].layer; }
  [[nodiscard]] uint32_t unit(uint32_t leaf) const noexcept { return facts_[leaf].unit; }
  // Of [first, last): contiguous in the record, if it was asked of group_end().
  [[nodiscard]] uint64_t bytes(uint32_t first, uint32_t last) const noexcept {
    return uint64_t{facts_[last - 1].offset} + facts_[last - 1].bytes - facts_[first].offset;
  }
  // Behind the last leaf that may be named together with `first`: of one unit, contiguous in the record, kMostBytes and kMostLeaves
  // at most, and either contiguous in a block or nothing that a copy engine would move by itself.
  [[nodiscard]] uint32_t group_end(uint32_t first) const noexcept { return facts_[first].group_end; }
  // Whether [first, last) is one piece in a block.
  [[nodiscard]] bool is_flat(uint32_t first, uint32_t last) const noexcept { return last <= facts_[first].flat_end; }
  // The job of a leaf of that block, with no record and nothing expected.
  [[nodiscard]] LeafJob job(uint32_t leaf, uint32_t block) const noexcept {
    const Template& t = templates_[leaf];
    LeafJob out = t.job;
    out.run.address += static_cast<uint64_t>(int64_t{block} * t.block_stride);
    return out;
  }
  [[nodiscard]] StridedRun run(uint32_t leaf, uint32_t block) const noexcept;

  static constexpr uint32_t kMostLeaves = 64;
  static constexpr uint64_t kMostBytes = 256ULL << 10;

 private:
  struct Template {
    LeafJob job;
    int64_t block_stride;
  };
  struct Facts {
    uint32_t offset, bytes, layer, unit;
    uint32_t group_end;
    uint32_t flat_end;
  };
  [[nodiscard]] bool follows_on_device(uint32_t leaf) const noexcept;

  std::vector<Template> templates_;
  std::vector<Facts> facts_;
  std::vector<StridedRun> runs_;  // of block 0
};

}  // namespace kvbm::device
