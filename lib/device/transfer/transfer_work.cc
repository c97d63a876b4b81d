#include "device/transfer/transfer_work.h"

#include <utility>

#include "codec/record/record.h"
#include "device/transfer/landmark.h"
#include "device/transfer/leaf_table.h"

namespace kvbm::device {

static_assert(kMaxJobBytes == codec::kMaxLeafBytes, "a leaf is one job");

namespace {

Path coded_path(codec::LeafCodec codec) noexcept {
  if (codec == codec::LeafCodec::planar) return Path::planar;
  return codec == codec::LeafCodec::quantized ? Path::quantized : Path::mapped;
}

// Checks a leaf with a run of its own (not a table's).
bool valid_coded(const LeafMove& leaf, Direction direction) noexcept {
  if (leaf.poison) return direction == Direction::scatter && leaf.codec == codec::LeafCodec::raw && !leaf.on_device;
  if (leaf.codec == codec::LeafCodec::raw) return true;
  return direction == Direction::scatter && !leaf.on_device && is_coded(coded_path(leaf.codec)) &&
         leaf.coded_bytes != 0 && leaf.coded_bytes < leaf.device.total();
}

bool valid_table(const LeafMove& leaf, const TransferBatch& batch, Direction direction) noexcept {
  const LeafTable& table = *leaf.table;
  if (leaf.record == nullptr || leaf.on_device || leaf.poison || leaf.codec != codec::LeafCodec::raw) return false;
  if (leaf.leaf_count == 0 || leaf.first_leaf >= table.size()) return false;
  if (leaf.leaf_count > table.group_end(leaf.first_leaf) - leaf.first_leaf) return false;
  return direction == Direction::gather || !leaf.check ||
         (leaf.expected <= batch.expected.size() && leaf.leaf_count <= batch.expected.size() - leaf.expected);
}

bool valid_leaf(const LeafMove& leaf) noexcept {
  if (leaf.leaf_count != 1) return false;
  const StridedRun& run = leaf.device;
  // Each factor alone first, so that the product cannot wrap.
  if (run.data == nullptr || (leaf.record == nullptr && !leaf.poison) || run.bytes == 0 ||
      run.bytes > codec::kMaxLeafBytes)
    return false;
  if (run.count0 == 0 || run.count1 == 0 || run.count0 > codec::kMaxLeafBytes || run.count1 > codec::kMaxLeafBytes) {
    return false;
  }
  return run.total() <= codec::kMaxLeafBytes;
}

bool valid_marks(const TransferBatch& batch) noexcept {
  if (!batch.marks.empty() && batch.landmark == nullptr) return false;
  for (size_t i = 0; i < batch.marks.size(); ++i) {
    const TransferBatch::Mark& mark = batch.marks[i];
    if (mark.leaf_count > batch.leaves.size() || mark.value >= (uint64_t{1} << 62)) return false;
    if (i > 0 && (mark.leaf_count < batch.marks[i - 1].leaf_count || mark.value < batch.marks[i - 1].value))
      return false;
  }
  return true;
}

PinnedHost::Place reach_of(const LeafMove& leaf, std::span<const std::shared_ptr<const PinnedHost>> known) noexcept {
  if (leaf.on_device) return {reinterpret_cast<uintptr_t>(leaf.record), 0};
  for (const std::shared_ptr<const PinnedHost>& memory : known) {
    const PinnedHost::Place place = memory->place(leaf.record, leaf.record_bytes());
    if (place.address != 0) return place;
  }
  return {};
}

// Makes each leaf an entry of its own, because the processor copies some of them, or an entry does not fit a part.
void expand(TransferBatch& batch) {
  std::vector<LeafMove> leaves;
  std::vector<size_t> end;  // of each entry, the end of its leaves in `leaves`
  end.reserve(batch.leaves.size());
  for (const LeafMove& many : batch.leaves) {
    if (many.table == nullptr) leaves.push_back(many);
    for (uint32_t i = 0; many.table != nullptr && i < many.leaf_count; ++i) {
      const uint32_t leaf = many.first_leaf + i;
      LeafMove one;
      one.device = many.table->run(leaf, many.block);
      one.record = many.record + (many.table->offset(leaf) - many.table->offset(many.first_leaf));
      one.check = many.check;
      if (one.check && !batch.expected.empty()) one.expected = batch.expected[many.expected + i];
      leaves.push_back(one);
    }
    end.push_back(leaves.size());
  }
  for (TransferBatch::Mark& mark : batch.marks) mark.leaf_count = mark.leaf_count == 0 ? 0 : end[mark.leaf_count - 1];
  batch.leaves = std::move(leaves);
}

PlanLeaf plan_leaf_of(const LeafMove& leaf, const PinnedHost::Place& reach) noexcept {
  const StridedRun& run = leaf.device;
  if (leaf.poison) return {reinterpret_cast<uintptr_t>(run.data), 0, 0, false, true, Path::poison, false, 0, 1};
  const bool flat = leaf.table != nullptr ? leaf.table->is_flat(leaf.first_leaf, leaf.first_leaf + leaf.leaf_count)
                                          : run.count0 == 1 && run.count1 == 1;
  return {reinterpret_cast<uintptr_t>(run.data),
          reinterpret_cast<uintptr_t>(leaf.record),
          static_cast<uint32_t>(leaf.record_bytes()),
          flat,
          reach.address != 0,
          coded_path(leaf.codec),
          leaf.on_device,
          reach.range,
          leaf.leaf_count};
}

// Fills in the locations of the batch, and `leaves`. Returns false if entries of many leaves have to be taken apart:
// they are allowed only if the device reaches every record and each entry fits a part.
bool locate(TransferWork& work, std::vector<PlanLeaf>& leaves, std::span<const std::shared_ptr<const PinnedHost>> known,
            const PlanLimits& limits, uint32_t part_bytes, size_t part_leaves) {
  TransferBatch& batch = work.batch;
  const size_t n = batch.leaves.size();
  leaves.clear();
  work.reach.clear();
  work.leaf_at.clear();
  leaves.reserve(n);
  work.reach.reserve(n);
  work.leaf_at.reserve(n);
  bool many = false, bounced = false, large = false;
  uint32_t total = 0;
  for (LeafMove& leaf : batch.leaves) {
    PinnedHost::Place reach = leaf.poison ? PinnedHost::Place{} : reach_of(leaf, known);
    // A leaf that is decoded in place must be aligned for the kernel.
    if (limits.always_mapped && is_coded(coded_path(leaf.codec)) && reach.address % kCodedAlignment != 0) reach = {};
    if (leaf.table != nullptr) {
      many = true;
      large |= leaf.record_bytes() > part_bytes || leaf.leaf_count > part_leaves;
    } else {
      leaf.device = joined(leaf.device);
    }
    bounced |= !leaf.poison && reach.address == 0;
    work.reach.push_back(reach.address);
    work.leaf_at.push_back(total);
    total += leaf.leaf_count;
    leaves.push_back(plan_leaf_of(leaf, reach));
  }
  if (many && (bounced || large)) return false;
  batch.hashes.assign(total, 0);
  batch.good.assign(total, 0);
  return true;
}

}  // namespace

StridedRun LeafMove::table_run(const LeafTable& table, uint32_t first, uint32_t count, uint32_t block) noexcept {
  StridedRun run;
  run.data = table.run(first, block).data;
  run.bytes = table.bytes(first, first + count);
  return run;
}

void TransferWork::count(TransferStats& stats) const noexcept {
  ++stats.batches;
  for (size_t i = 0; i < batch.leaves.size(); ++i) {
    const LeafMove& move = batch.leaves[i];
    if (move.poison) continue;
    const uint64_t n = move.leaf_count;
    stats.leaves += n;
    stats.bytes += move.device.total();
    for (size_t at = leaf_at[i]; at < leaf_at[i] + n; ++at) stats.bad_leaves += batch.good[at] == 0 ? 1 : 0;
    stats.bounced_leaves += plan.leaves[i].bounced ? n : 0;
    if (move.on_device) {
      stats.inside_leaves += n;
      continue;
    }
    switch (plan.leaves[i].path) {
      case Path::mapped:
        stats.mapped_leaves += n;
        break;
      case Path::staged:
        stats.staged_leaves += n;
        break;
      case Path::straight:
        stats.straight_leaves += n;
        break;
      case Path::planar:
      case Path::quantized:
        stats.decoded_leaves += n;
        break;
      case Path::poison:
        break;
    }
  }
}

StridedRun joined(StridedRun run) noexcept {
  if (run.count1 == 1 || (run.stride1 >= 0 && static_cast<uint64_t>(run.stride1) == run.bytes)) {
    run.bytes *= run.count1;
    run.count1 = 1;
  }
  if (run.count1 == 1 && (run.count0 == 1 || (run.stride0 >= 0 && static_cast<uint64_t>(run.stride0) == run.bytes))) {
    run.bytes *= run.count0;
    run.count0 = 1;
  }
  // A single level of pieces becomes the inner one.
  if (run.count1 == 1 && run.count0 > 1) {
    run.count1 = std::exchange(run.count0, 1);
    run.stride1 = run.stride0;
  }
  if (run.count1 == 1) run.stride1 = 0;
  if (run.count0 == 1) run.stride0 = 0;
  return run;
}

std::shared_ptr<TransferWork> make_work(TransferBatch batch, Direction direction,
                                        std::span<const std::shared_ptr<const PinnedHost>> known,
                                        const PlanLimits& limits, uint32_t part_bytes, size_t part_leaves) {
  auto work = std::make_shared<TransferWork>();
  work->batch = std::move(batch);
  TransferBatch& b = work->batch;
  if (direction == Direction::gather) {
    b.marks.clear();
    b.landmark.reset();
  }
  bool valid = valid_marks(b);
  for (const LeafMove& leaf : b.leaves) {
    valid = valid && (leaf.table != nullptr ? valid_table(leaf, b, direction)
                                            : valid_leaf(leaf) && valid_coded(leaf, direction));
  }
  if (!valid) {
    work->code = Code::invalid_argument;
    return work;
  }
  std::vector<PlanLeaf> leaves;
  PlanLimits own = limits;
  const bool waited_for = b.landmark != nullptr && LandmarkPool::kind(*b.landmark) == LandmarkKind::on_device;
  own.always_mapped |= waited_for && !limits.copies_behind_waits;
  if (!locate(*work, leaves, known, own, part_bytes, part_leaves)) {
    expand(b);
    (void)locate(*work, leaves, known, own, part_bytes, part_leaves);
  }
  std::vector<size_t> marks;
  marks.reserve(b.marks.size());
  for (const TransferBatch::Mark& mark : b.marks) marks.push_back(mark.leaf_count);
  work->plan = plan_transfer(leaves, marks, own, part_bytes, part_leaves);
  return work;
}

}  // namespace kvbm::device
