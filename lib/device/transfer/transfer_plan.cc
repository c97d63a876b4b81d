#include "device/transfer/transfer_plan.h"

#include <algorithm>

#include "base/bytes.h"

namespace kvbm::device {

namespace {

// Returns whether the bytes of b follow those of a in host memory: in the record, or in the pinned memory of a part,
// where bounced leaves lie in their order.
bool host_neighbours(const PlanLeaf& a, const PlanLeaf& b) noexcept {
  return a.pinned == b.pinned && a.kind == b.kind && a.on_device == b.on_device &&
         (!a.pinned || (a.range == b.range && a.record + a.bytes == b.record));
}

bool device_neighbours(const PlanLeaf& a, const PlanLeaf& b) noexcept {
  return a.flat && b.flat && a.kind == Path::mapped && b.kind == Path::mapped && a.device + a.bytes == b.device;
}

// Marks leaves of runs that are long enough on both sides as straight; all others are mapped, until their part is
// known.
void find_straight(std::span<const PlanLeaf> leaves, const PlanLimits& limits, TransferPlan& plan) {
  if (limits.always_mapped) return;
  for (size_t i = 0; i < leaves.size();) {
    uint64_t bytes = leaves[i].bytes;
    size_t end = i + 1;
    while (end < leaves.size() && host_neighbours(leaves[end - 1], leaves[end]) &&
           device_neighbours(leaves[end - 1], leaves[end])) {
      bytes += leaves[end++].bytes;
    }
    if (leaves[i].flat && leaves[i].kind == Path::mapped && !leaves[i].on_device && bytes >= limits.straight_bytes) {
      plan.straight = true;
      for (; i < end; ++i) plan.leaves[i].path = Path::straight;
    }
    i = end;
  }
}

// Cuts the batch into parts, and gives each leaf its place in the staging of its part.
class Cutter {
 public:
  // `stage`: the batch is large enough for staging.
  Cutter(std::span<const PlanLeaf> leaves, std::span<const size_t> marks, const PlanLimits& limits, uint32_t part_bytes,
         size_t part_leaves, bool stage, TransferPlan& plan)
      : leaves_(leaves),
        marks_(marks),
        limits_(limits),
        part_bytes_(part_bytes),
        part_leaves_(part_leaves),
        stage_(stage),
        plan_(plan) {}

  void cut() {
    for (size_t i = 0; i < leaves_.size(); ++i) {
      bool follows = part_.count > 0 && neighbours(i);
      uint64_t offset = follows ? part_.bytes : round_up(part_.bytes, kRunAlignment);
      if (part_.leaves + leaves_[i].leaves > part_leaves_ || offset + leaves_[i].bytes > part_bytes_) {
        end_part();
        follows = false;
        offset = 0;
      }
      add(i, static_cast<uint32_t>(offset), follows);
      if (at_mark(i + 1) && part_.bytes >= limits_.mark_bytes) end_part();
    }
    if (part_.count > 0 || (leaves_.empty() && !marks_.empty())) end_part();
  }

 private:
  [[nodiscard]] bool neighbours(size_t i) const noexcept {
    if (plan_.leaves[i - 1].path != plan_.leaves[i].path || !host_neighbours(leaves_[i - 1], leaves_[i])) return false;
    if (is_coded(plan_.leaves[i].path)) return part_.bytes % kCodedAlignment == 0;
    return plan_.leaves[i].path != Path::straight || device_neighbours(leaves_[i - 1], leaves_[i]);
  }

  void add(size_t i, uint32_t offset, bool follows) noexcept {
    PlannedLeaf& leaf = plan_.leaves[i];
    leaf.offset = offset;
    leaf.bounced = !leaves_[i].pinned;
    leaf.run_begins = !follows;
    part_.bounced |= leaf.bounced;
    part_.bytes = offset + leaves_[i].bytes;
    ++part_.count;
    part_.leaves += leaves_[i].leaves;
    if (leaf.path == Path::poison) {
      ++part_.poison_leaves;
    } else if (is_coded(leaf.path)) {
      ++(leaf.path == Path::planar ? part_.planar_leaves : part_.quantized_leaves);
      part_.copies += leaf.run_begins && !limits_.always_mapped ? 1 : 0;
    } else if (leaf.path == Path::straight) {
      part_.copies += leaf.run_begins ? 1 : 0;
    } else {
      part_.kernel_leaves += leaves_[i].leaves;
      if (leaves_[i].on_device) return;
      kernel_bytes_ += leaves_[i].bytes;
      kernel_runs_ += leaf.run_begins ? 1 : 0;
    }
  }

  [[nodiscard]] bool at_mark(size_t count) const noexcept {
    return std::binary_search(marks_.begin(), marks_.end(), count);
  }

  void end_part() {
    const size_t end = part_.first + part_.count;
    while (next_mark_ < marks_.size() && marks_[next_mark_] <= end) {
      part_.has_mark = true;
      part_.mark = next_mark_++;
    }
    if (stage_ && kernel_runs_ > 0 && kernel_bytes_ / kernel_runs_ >= limits_.staged_run_bytes) {
      for (size_t i = part_.first; i < end; ++i) {
        if (plan_.leaves[i].path == Path::mapped && !leaves_[i].on_device) plan_.leaves[i].path = Path::staged;
      }
      part_.copies += kernel_runs_;
    }
    plan_.parts.push_back(part_);
    part_ = PlannedPart{};
    part_.first = end;
    kernel_bytes_ = kernel_runs_ = 0;
  }

  std::span<const PlanLeaf> leaves_;
  std::span<const size_t> marks_;
  const PlanLimits& limits_;
  const uint32_t part_bytes_;
  const size_t part_leaves_;
  const bool stage_;
  TransferPlan& plan_;
  PlannedPart part_;
  uint64_t kernel_bytes_ = 0;  // of the part
  uint64_t kernel_runs_ = 0;
  size_t next_mark_ = 0;
};

}  // namespace

TransferPlan plan_transfer(std::span<const PlanLeaf> leaves, std::span<const size_t> marks, const PlanLimits& limits,
                           uint32_t part_bytes, size_t part_leaves) {
  TransferPlan plan;
  plan.in_place = limits.always_mapped;
  plan.leaves.resize(leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) plan.leaves[i].path = leaves[i].kind;
  find_straight(leaves, limits, plan);
  uint64_t kernel_bytes = 0;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (plan.leaves[i].path == Path::mapped && !leaves[i].on_device) kernel_bytes += leaves[i].bytes;
  }
  const bool stage = !limits.always_mapped && kernel_bytes > limits.mapped_bytes;
  Cutter(leaves, marks, limits, part_bytes, part_leaves, stage, plan).cut();
  return plan;
}

}  // namespace kvbm::device
