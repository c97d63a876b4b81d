// Wire form of one slice: a rectangle of one layer, in canonical order [plane][head][position][dim] without padding,
// cut into leaves that are hashed one by one. It is independent of either side's block size, order and parallel
// shape. Normative: README.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cluster/session/block_map.h"
#include "cluster/session/facts.h"
#include "cluster/session/mover.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::cluster::session {

inline constexpr uint32_t kLeafBytes = 64 * 1024;
// Two planes of the widest row that layout accepts always fit, so that every rectangle can be cut to size.
inline constexpr uint32_t kMinSliceBytes = 128 * 1024;
inline constexpr uint32_t kMaxSliceBytes = 16 * 1024 * 1024;

struct SliceLeaf {
  uint32_t plane = 0;
  Extent extent;
  uint64_t offset = 0;
  uint32_t bytes = 0;
};

// Leaf rule, as for records: as many whole heads of a plane as fit kLeafBytes; a head that alone exceeds it is cut
// into pieces of as many whole positions as fit. With a grain (Extent::grain, which fits_grain) the payload is
// [plane][cell][head][position][dim]. Cells then end at multiples of the grain, and a leaf is as many heads of a cell
// as fit.
class SliceShape {
 public:
  // Returns true if a slice may have this grain: one head of a cell fits a leaf, and there are at most max_leaves().
  static bool fits_grain(const layout::ComponentGeometry& c, const Extent& extent) noexcept;
  SliceShape(const layout::ComponentGeometry& c, const Extent& extent) noexcept;
  [[nodiscard]] uint64_t payload_bytes() const noexcept { return head_bytes_ * extent_.heads * planes_; }
  [[nodiscard]] uint32_t leaf_count() const noexcept { return planes_ * groups_ * pieces_; }
  // Returns leaf i < leaf_count(); leaves are consecutive in the payload.
  [[nodiscard]] SliceLeaf leaf(uint32_t i) const noexcept;

 private:
  [[nodiscard]] SliceLeaf cell_leaf(uint32_t i) const noexcept;
  Extent extent_;
  uint32_t planes_, row_, heads_per_leaf_, groups_, pieces_ = 1;
  uint64_t per_piece_;  // positions; equals the grain if there is one
  uint64_t head_bytes_;
};

// Returns an upper bound of a slice's leaves. Without a grain a leaf has more than 16 KiB on average, except for one
// rest a plane; with a grain the bound is a rule.
inline constexpr uint32_t max_leaves(uint64_t payload_bytes) noexcept {
  return static_cast<uint32_t>(payload_bytes / (2 * 1024)) + 2;
}

// Returns the largest grain for slices between blocks of these two grains that leaves of one head can have; 0: none.
uint32_t common_grain(const layout::ComponentGeometry& c, uint32_t a, uint32_t b) noexcept;

// Returns the move of one slice for a mover; `payload` is shape.payload_bytes() long. Hashes are zero.
std::unique_ptr<SliceMove> slice_move(const Facts& facts, const LocalPart& local, const Extent& extent,
                                      std::byte* payload);

// Copies between engine memory of the CPU and wire form, one leaf at a time, and hashes on the way. Each state
// machine has one, so that its scratch space is allocated once. One thread at a time.
class SliceCopy {
 public:
  // Copies to `payload`, which is shape.payload_bytes() long; hashes: leaf_count().
  void gather(const Facts& facts, const LocalPart& from, const Extent& extent, std::byte* payload,
              std::span<uint64_t> hashes);
  // Copies to engine memory. Returns the index of the first leaf with another hash, or leaf_count() if all are right.
  // Otherwise the rectangle's target bytes are undefined.
  uint32_t scatter(const Facts& facts, const LocalPart& to, const Extent& extent, const std::byte* payload,
                   std::span<const uint64_t> hashes);
  // Lists the pieces of engine memory that form the payload, if they are few and long enough to be sent without a
  // copy (`pieces` then has them); false otherwise.
  bool straight(const Facts& facts, const LocalPart& from, const Extent& extent, uint64_t least_piece_bytes,
                std::vector<ConstBytes>& pieces, std::span<uint64_t> hashes);

 private:
  std::vector<StridedRun> runs_;
};

}  // namespace kvbm::cluster::session
