#include "device/transfer/leaf_table.h"

#include <algorithm>

#include "device/transfer/transfer_plan.h"
#include "device/transfer/transfer_work.h"

namespace kvbm::device {

void LeafTable::add(const StridedRun& block0, const StridedRun& block1, uint32_t offset, uint32_t layer,
                    uint32_t unit) {
  const StridedRun run = joined(block0);
  const auto base = reinterpret_cast<uintptr_t>(block0.data);
  const auto stride = static_cast<int64_t>(reinterpret_cast<uintptr_t>(block1.data) - base);
  const DeviceRun made = make_run(base, run.bytes, run.count1, run.stride0, run.stride1);
  LeafJob job = make_leaf_job(made, run.count0, 0, false, 0);
  // Blocks may be less aligned than block 0.
  const uint32_t width = std::min(width_of_run(made, run.count0), width_of(static_cast<uint64_t>(stride)));
  job.flags = width << kRunWidthShift;
  jobs_.push_back(job);
  facts_.push_back({offset, job.bytes, layer, unit, 0, 0, stride});
  runs_.push_back(run);
}

StridedRun LeafTable::run(uint32_t leaf, uint32_t block) const noexcept {
  StridedRun out = runs_[leaf];
  const int64_t further = int64_t{block} * facts_[leaf].block_stride;
  out.data = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(out.data) + static_cast<uintptr_t>(further));
  return out;
}

bool LeafTable::follows_on_device(uint32_t leaf) const noexcept {
  const StridedRun& a = runs_[leaf - 1];
  const StridedRun& b = runs_[leaf];
  return a.count0 * a.count1 == 1 && b.count0 * b.count1 == 1 &&
         facts_[leaf - 1].block_stride == facts_[leaf].block_stride && a.data + a.bytes == b.data;
}

void LeafTable::finish() {
  const uint32_t n = size();
  for (uint32_t i = n; i-- > 0;) {
    const bool flat = runs_[i].count0 * runs_[i].count1 == 1;
    const bool goes_on = i + 1 < n && flat && follows_on_device(i + 1);
    facts_[i].flat_end = goes_on ? facts_[i + 1].flat_end : flat ? i + 1 : i;
  }
  // A group also ends before and after a piece that is long enough for a copy of its own.
  std::vector<bool> cut(n + 1, false);
  for (uint32_t i = 0; i < n; i = std::max(facts_[i].flat_end, i + 1)) {
    const uint32_t end = facts_[i].flat_end;
    if (end <= i || bytes(i, end) < PlanLimits().straight_bytes) continue;
    cut[i] = cut[end] = true;
  }
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t end = i + 1;
    while (end < n && end - i < kMostLeaves && !cut[end] && facts_[end].unit == facts_[i].unit &&
           facts_[end - 1].offset + facts_[end - 1].bytes == facts_[end].offset && bytes(i, end + 1) <= kMostBytes) {
      ++end;
    }
    facts_[i].group_end = end;
  }
}

}  // namespace kvbm::device
