// Re-slicing: lists the bytes of source records that make the canonical bytes of a target record. The two sides may
// differ in tensor- or pipeline-parallel shape, in engine block size or in units. Computed once for a pair of shapes,
// then used for every block. Pure offsets: it sees no memory. Deterministic: of several sources that hold the same
// bytes (replicated heads) the one that comes first in `sources` is used.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "layout/record_shape.h"

namespace kvbm::layout {

// A record at a place in the sequence. first_token counts from any common origin.
struct PlacedRecord {
  RecordShape shape;
  uint64_t first_token = 0;
};

// `count` pieces of `bytes` each: from source_offset + i * source_stride in the payload of source
// `source`, to target_offset + i * target_stride in the target's. Pieces are heads.
struct Move {
  uint32_t source = 0;
  uint32_t layer = 0;  // of the target's shard
  uint64_t source_offset = 0;
  uint64_t target_offset = 0;
  uint64_t bytes = 0;
  uint32_t count = 1;
  uint64_t source_stride = 0;
  uint64_t target_stride = 0;
};

// A part of the target that no source has. Layers and heads of the whole model, tokens from the
// common origin.
struct Gap {
  uint32_t first_layer = 0;
  uint32_t layers = 0;
  uint32_t first_head = 0;
  uint32_t heads = 0;
  uint64_t first_token = 0;
  uint64_t tokens = 0;
  bool operator==(const Gap&) const = default;
};

class Reslice {
 public:
  // mismatch when a source differs from the target in kind, planes, row size or element type. unsupported when a state
  // would have to be cut. no_room when the plan would exceed kMaxMoves.
  static Result<Reslice> make(std::span<const PlacedRecord> sources, const PlacedRecord& target);

  static constexpr size_t kMaxMoves = 1U << 22;

  // Ordered by target layer, then plane, then token, then head.
  [[nodiscard]] std::span<const Move> moves() const noexcept { return moves_; }
  [[nodiscard]] bool complete() const noexcept { return gaps_.empty(); }
  [[nodiscard]] std::span<const Gap> gaps() const noexcept { return gaps_; }
  // The leaves of that source that the moves read: ascending, disjoint, merged.
  [[nodiscard]] std::span<const LeafRange> source_leaves(uint32_t source) const noexcept { return leaves_[source]; }

 private:
  Reslice() = default;

  std::vector<Move> moves_;
  std::vector<Gap> gaps_;
  std::vector<std::vector<LeafRange>> leaves_;
};

}  // namespace kvbm::layout
