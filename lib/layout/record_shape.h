// The canonical arrangement of one record's payload, and how it is cut into leaves.
//
// Payload order: [layer][plane][unit][head][token][dim], no padding. A leaf is one
// (layer, plane, unit, head group): as many whole heads as fit in kLeafLimit. A head that alone
// exceeds it is cut into pieces of as many whole tokens as fit. Leaves are contiguous and in
// payload order, so everything here is arithmetic: no table, no allocation. Normative: README.md.
//
// Layers, heads and units are counted from the start of the shard. A state component has
// planes = heads = 1, and its bytes stand for tokens (tokens = state bytes, row_bytes = 1).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ids.h"
#include "base/status.h"
#include "layout/geometry.h"

namespace kvbm::layout {

// Equal to codec::kMaxLeafBytes, kMaxLeaves and the 32-bit payload offset; capi asserts equality,
// for layout and codec do not include each other.
inline constexpr uint64_t kLeafLimit = uint64_t{64} * 1024;
inline constexpr uint32_t kLeafCountLimit = 1U << 16;
inline constexpr uint64_t kPayloadLimit = 0xFFFFFFFFULL;

struct LeafExtent {
  uint64_t offset = 0;  // in the payload
  uint32_t bytes = 0;
  uint32_t layer = 0;
  uint32_t plane = 0;
  uint32_t unit = 0;
  uint32_t first_head = 0;
  uint32_t heads = 0;
  uint32_t first_token = 0;  // inside the unit; 0 and all tokens unless the head is cut
  uint32_t tokens = 0;
  bool operator==(const LeafExtent&) const = default;
};

struct LeafRange {
  uint32_t first = 0;
  uint32_t count = 0;
  bool operator==(const LeafRange&) const = default;
};

class RecordShape {
 public:
  // `units`: engine blocks in this record; at most geometry.units(). Refuses a record of more than
  // kLeafCountLimit leaves or kPayloadLimit bytes, naming both numbers.
  static Result<RecordShape> make(const Geometry& geometry, Component component, const Shard& shard, uint32_t units);

  [[nodiscard]] uint32_t layers() const noexcept { return layers_; }
  [[nodiscard]] uint32_t planes() const noexcept { return planes_; }
  [[nodiscard]] uint32_t units() const noexcept { return units_; }
  [[nodiscard]] uint32_t heads() const noexcept { return heads_; }
  [[nodiscard]] uint32_t tokens() const noexcept { return tokens_; }        // of one unit
  [[nodiscard]] uint32_t row_bytes() const noexcept { return row_bytes_; }  // one head of one token
  [[nodiscard]] Element element() const noexcept { return element_; }
  [[nodiscard]] ComponentKind kind() const noexcept { return kind_; }
  [[nodiscard]] const Shard& shard() const noexcept { return shard_; }

  // Sizes within one plane (K or V of a layer). head_bytes: one head of one unit, tokens * row. The next two: all heads
  // of one unit, and all units.
  [[nodiscard]] uint64_t head_bytes() const noexcept { return head_bytes_; }
  [[nodiscard]] uint64_t unit_bytes() const noexcept { return head_bytes_ * heads_; }
  [[nodiscard]] uint64_t plane_bytes() const noexcept { return unit_bytes() * units_; }
  [[nodiscard]] uint64_t layer_bytes() const noexcept { return plane_bytes() * planes_; }
  [[nodiscard]] uint64_t payload_bytes() const noexcept { return layer_bytes() * layers_; }

  [[nodiscard]] uint32_t groups() const noexcept { return groups_; }  // head groups of a unit
  [[nodiscard]] uint32_t pieces() const noexcept { return pieces_; }  // pieces of a head; mostly 1
  [[nodiscard]] uint32_t tokens_per_piece() const noexcept { return tokens_per_piece_; }
  [[nodiscard]] uint32_t leaves_per_unit() const noexcept { return groups_ * pieces_; }
  [[nodiscard]] uint32_t leaves_per_layer() const noexcept { return planes_ * units_ * leaves_per_unit(); }
  [[nodiscard]] uint32_t leaf_count() const noexcept { return layers_ * leaves_per_layer(); }

  // Requires i < leaf_count().
  [[nodiscard]] LeafExtent leaf(uint32_t i) const noexcept;
  // The leaf that holds that byte. offset < payload_bytes().
  [[nodiscard]] uint32_t leaf_at(uint64_t offset) const noexcept;

  bool operator==(const RecordShape&) const = default;

 private:
  RecordShape() = default;

  uint32_t layers_ = 0, planes_ = 0, units_ = 0, heads_ = 0, tokens_ = 0, row_bytes_ = 0;
  Element element_ = Element::bytes;
  ComponentKind kind_ = ComponentKind::attention;
  Shard shard_;
  uint64_t head_bytes_ = 0;
  uint32_t heads_per_leaf_ = 1, groups_ = 1, pieces_ = 1, tokens_per_piece_ = 0;
};

}  // namespace kvbm::layout
