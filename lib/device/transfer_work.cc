#include "device/transfer_work.h"

#include <utility>

#include "codec/record.h"

namespace kvbm::device {

namespace {

Path coded_path(codec::LeafCodec codec) noexcept {
  if (codec == codec::LeafCodec::planar) return Path::planar;
  return codec == codec::LeafCodec::quantized ? Path::quantized : Path::mapped;
}

// Of a leaf whose run is one.
bool valid_coded(const LeafMove& leaf, Direction direction) noexcept {
  if (leaf.poison) return direction == Direction::scatter && leaf.codec == codec::LeafCodec::raw && !leaf.on_device;
  if (leaf.codec == codec::LeafCodec::raw) return true;
  return direction == Direction::scatter && !leaf.on_device && is_coded(coded_path(leaf.codec)) &&
         leaf.coded_bytes != 0 && leaf.coded_bytes < leaf.device.total();
}

bool valid_leaf(const LeafMove& leaf) noexcept {
  const StridedRun& run = leaf.device;
  // Each factor alone first, so that the product cannot wrap.
  if (run.data == nullptr || (leaf.record == nullptr && !leaf.poison) || run.bytes == 0 || run.bytes > codec::kMaxLeafBytes) return false;
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
    if (i > 0 && (mark.leaf_count < batch.marks[i - 1].leaf_count || mark.value < batch.marks[i - 1].value)) return false;
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

}  // namespace

StridedRun joined(StridedRun run) noexcept {
  if (run.count1 == 1 || (run.stride1 >= 0 && static_cast<uint64_t>(run.stride1) == run.bytes)) {
    run.bytes *= run.count1;
    run.count1 = 1;
  }
  if (run.count1 == 1 && (run.count0 == 1 || (run.stride0 >= 0 && static_cast<uint64_t>(run.stride0) == run.bytes))) {
    run.bytes *= run.count0;
    run.count0 = 1;
  }
  // One level of pieces is the inner one, whichever it was.
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
  for (const LeafMove& leaf : b.leaves) valid = valid && valid_leaf(leaf) && valid_coded(leaf, direction);
  if (!valid) {
    work->code = Code::invalid_argument;
    return work;
  }
  std::vector<PlanLeaf> leaves;
  leaves.reserve(b.leaves.size());
  work->reach.reserve(b.leaves.size());
  for (LeafMove& leaf : b.leaves) {
    leaf.device = joined(leaf.device);
    const Path coded = coded_path(leaf.codec);
    PinnedHost::Place reach = leaf.poison ? PinnedHost::Place{} : reach_of(leaf, known);
    // Decoded where it lies, it must lie as a kernel can read it.
    if (limits.always_mapped && is_coded(coded) && reach.address % kCodedAlignment != 0) reach = {};
    const StridedRun& run = leaf.device;
    work->reach.push_back(reach.address);
    if (leaf.poison) {
      leaves.push_back({reinterpret_cast<uintptr_t>(run.data), 0, 0, false, true, Path::poison, false, 0});
      continue;
    }
    leaves.push_back({reinterpret_cast<uintptr_t>(run.data), reinterpret_cast<uintptr_t>(leaf.record),
                      static_cast<uint32_t>(leaf.record_bytes()), run.count0 == 1 && run.count1 == 1, reach.address != 0, coded,
                      leaf.on_device, reach.range});
  }
  std::vector<size_t> marks;
  marks.reserve(b.marks.size());
  for (const TransferBatch::Mark& mark : b.marks) marks.push_back(mark.leaf_count);
  work->plan = plan_transfer(leaves, marks, limits, part_bytes, part_leaves);
  b.hashes.assign(b.leaves.size(), 0);
  b.good.assign(b.leaves.size(), 0);
  return work;
}

}  // namespace kvbm::device
