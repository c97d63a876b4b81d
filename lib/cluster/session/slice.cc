#include "cluster/session/slice.h"

#include <algorithm>
#include <numeric>

namespace kvbm::cluster::session {
namespace {

// Slices with more pieces use staging: a transport handles each piece.
constexpr size_t kMaxStraightPieces = 64;

}  // namespace

SliceShape::SliceShape(const layout::ComponentGeometry& c, const Extent& extent) noexcept
    : extent_(extent), planes_(c.planes), row_(row_bytes(c)) {
  per_piece_ = extent.range.size();
  head_bytes_ = per_piece_ * row_;
  heads_per_leaf_ = 1;
  if (const uint64_t grain = extent.grain; grain != 0) {
    per_piece_ = grain;
    pieces_ = static_cast<uint32_t>((extent.range.end + grain - 1) / grain - extent.range.begin / grain);
    heads_per_leaf_ = std::min<uint32_t>(extent.heads, static_cast<uint32_t>(kLeafBytes / (grain * row_)));
  } else if (head_bytes_ > kLeafBytes) {
    per_piece_ = kLeafBytes / row_;
    pieces_ = static_cast<uint32_t>((extent.range.size() + per_piece_ - 1) / per_piece_);
  } else {
    heads_per_leaf_ = std::min<uint32_t>(extent.heads, static_cast<uint32_t>(kLeafBytes / head_bytes_));
  }
  groups_ = (extent.heads + heads_per_leaf_ - 1) / heads_per_leaf_;
}

bool SliceShape::fits_grain(const layout::ComponentGeometry& c, const Extent& extent) noexcept {
  if (extent.grain == 0) return true;
  if (c.kind == layout::ComponentKind::state || uint64_t{extent.grain} * row_bytes(c) > kLeafBytes) return false;
  const SliceShape shape(c, extent);
  return shape.leaf_count() <= max_leaves(shape.payload_bytes());
}

uint32_t common_grain(const layout::ComponentGeometry& c, uint32_t a, uint32_t b) noexcept {
  if (a == 0 || b == 0) return 0;
  uint64_t grain = std::gcd(a, b);
  while (grain * row_bytes(c) > kLeafBytes && grain % 2 == 0) grain /= 2;
  return grain * row_bytes(c) > kLeafBytes ? 0 : static_cast<uint32_t>(grain);
}

SliceLeaf SliceShape::cell_leaf(uint32_t i) const noexcept {
  const uint32_t head = i % groups_ * heads_per_leaf_;
  const uint64_t cell = extent_.range.begin / per_piece_ + i / groups_ % pieces_;
  SliceLeaf leaf;
  leaf.plane = i / groups_ / pieces_;
  leaf.extent = extent_;
  leaf.extent.first_head = static_cast<uint16_t>(extent_.first_head + head);
  leaf.extent.heads = static_cast<uint16_t>(std::min(heads_per_leaf_, extent_.heads - head));
  leaf.extent.range = {std::max(extent_.range.begin, cell * per_piece_),
                       std::min(extent_.range.end, (cell + 1) * per_piece_)};
  const uint64_t row_of_cell = leaf.extent.range.size() * row_;
  leaf.bytes = static_cast<uint32_t>(leaf.extent.heads * row_of_cell);
  leaf.offset = leaf.plane * extent_.heads * head_bytes_ + head * row_of_cell +
                (leaf.extent.range.begin - extent_.range.begin) * row_ * extent_.heads;
  return leaf;
}

SliceLeaf SliceShape::leaf(uint32_t i) const noexcept {
  if (extent_.grain != 0) return cell_leaf(i);
  const uint32_t piece = i % pieces_;
  const uint32_t group = i / pieces_ % groups_;
  SliceLeaf leaf;
  leaf.plane = i / pieces_ / groups_;
  leaf.extent = extent_;
  const uint32_t head = group * heads_per_leaf_;
  leaf.extent.first_head = static_cast<uint16_t>(extent_.first_head + head);
  leaf.extent.heads = static_cast<uint16_t>(std::min(heads_per_leaf_, extent_.heads - head));
  leaf.extent.range.begin = extent_.range.begin + piece * per_piece_;
  leaf.extent.range.end = std::min(extent_.range.end, leaf.extent.range.begin + per_piece_);
  leaf.bytes = static_cast<uint32_t>(leaf.extent.heads * leaf.extent.range.size() * row_);
  leaf.offset = (uint64_t{leaf.plane} * extent_.heads + head) * head_bytes_ + piece * per_piece_ * row_;
  return leaf;
}

std::unique_ptr<SliceMove> slice_move(const Facts& facts, const LocalPart& local, const Extent& extent,
                                      std::byte* payload) {
  const SliceShape shape(facts.components[extent.component], extent);
  auto move = std::make_unique<SliceMove>();
  move->payload = payload;
  move->leaves.reserve(shape.leaf_count());
  move->hashes.resize(shape.leaf_count());
  std::vector<StridedRun> runs;  // of one leaf: append_runs joins adjacent runs
  for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
    const SliceLeaf leaf = shape.leaf(i);
    const size_t first = move->runs.size();
    runs.clear();
    append_runs(local, leaf.extent, leaf.plane, runs);
    move->runs.insert(move->runs.end(), runs.begin(), runs.end());
    move->leaves.push_back({leaf.offset, leaf.bytes, static_cast<uint32_t>(first), static_cast<uint32_t>(runs.size())});
  }
  return move;
}

void SliceCopy::gather(const Facts& facts, const LocalPart& from, const Extent& extent, std::byte* payload,
                       std::span<uint64_t> hashes) {
  const SliceShape shape(facts.components[extent.component], extent);
  for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
    const SliceLeaf leaf = shape.leaf(i);
    runs_.clear();
    append_runs(from, leaf.extent, leaf.plane, runs_);
    // Cached, because the transport reads it next.
    hashes[i] = codec::gather_hashed(payload + leaf.offset, runs_, codec::CopyHint::cached);
  }
}

uint32_t SliceCopy::scatter(const Facts& facts, const LocalPart& to, const Extent& extent, const std::byte* payload,
                            std::span<const uint64_t> hashes) {
  const SliceShape shape(facts.components[extent.component], extent);
  for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
    const SliceLeaf leaf = shape.leaf(i);
    runs_.clear();
    append_runs(to, leaf.extent, leaf.plane, runs_);
    if (codec::scatter_hashed(runs_, payload + leaf.offset, codec::CopyHint::automatic) != hashes[i]) return i;
  }
  return shape.leaf_count();
}

bool SliceCopy::straight(const Facts& facts, const LocalPart& from, const Extent& extent, uint64_t least_piece_bytes,
                         std::vector<ConstBytes>& pieces, std::span<uint64_t> hashes) {
  const layout::ComponentGeometry& c = facts.components[extent.component];
  runs_.clear();
  for (uint32_t plane = 0; plane < c.planes; ++plane) append_runs(from, extent, plane, runs_);
  pieces.clear();
  if (runs_.size() > kMaxStraightPieces || extent.grain != 0) return false;
  for (const StridedRun& run : runs_) {
    if (run.count0 != 1 || run.count1 != 1 || run.bytes < least_piece_bytes) return false;
  }
  for (const StridedRun& run : runs_) pieces.emplace_back(run.data, run.bytes);
  const SliceShape shape(c, extent);
  for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
    const SliceLeaf leaf = shape.leaf(i);
    runs_.clear();
    append_runs(from, leaf.extent, leaf.plane, runs_);
    // Runs that are contiguous in the slice are contiguous in the leaf, but a leaf may span two pieces.
    if (runs_.size() != 1) return false;
    hashes[i] = codec::leaf_hash({runs_[0].data, runs_[0].bytes});
  }
  return true;
}

}  // namespace kvbm::cluster::session
