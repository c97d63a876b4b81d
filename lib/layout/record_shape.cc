#include "layout/record_shape.h"

#include <string>

#include "layout/shard.h"

namespace kvbm::layout {

Result<RecordShape> RecordShape::make(const Geometry& geometry, Component component, const Shard& shard,
                                      uint32_t units) {
  if (auto s = check_shard(geometry, component, shard); !s.ok()) return s;
  if (units == 0 || units > geometry.units()) {
    return Status(Code::invalid_argument, "wrong number of engine blocks in a record",
                  std::to_string(units) + ", must be 1 to " + std::to_string(geometry.units()));
  }
  const ComponentGeometry& c = *geometry.component(component);
  RecordShape r;
  r.layers_ = shard.layers;
  r.planes_ = c.planes;
  r.units_ = units;
  r.heads_ = shard.heads;
  r.element_ = c.element;
  r.kind_ = c.kind;
  r.shard_ = shard;
  const bool is_state = c.kind == ComponentKind::state;
  r.tokens_ = is_state ? static_cast<uint32_t>(c.state_bytes) : geometry.tokens_per_block();
  r.row_bytes_ = is_state ? 1 : c.head_dim * element_bytes(c.element);
  r.head_bytes_ = uint64_t{r.tokens_} * r.row_bytes_;
  r.tokens_per_piece_ = std::min<uint32_t>(r.tokens_, static_cast<uint32_t>(kLeafLimit / r.row_bytes_));
  r.pieces_ = static_cast<uint32_t>((uint64_t{r.tokens_} + r.tokens_per_piece_ - 1) / r.tokens_per_piece_);
  if (r.pieces_ == 1) {
    r.heads_per_leaf_ = static_cast<uint32_t>(std::min<uint64_t>(r.heads_, kLeafLimit / r.head_bytes_));
  }
  r.groups_ = (r.heads_ + r.heads_per_leaf_ - 1) / r.heads_per_leaf_;

  // Largest product: 4096 layers * 2 * 4096 units * 4096 heads * 2^31 bytes of a head < 2^69, so in doubles first.
  const double bytes = static_cast<double>(r.head_bytes_) * r.heads_ * r.units_ * r.planes_ * r.layers_;
  const double leaves = static_cast<double>(r.groups_) * r.pieces_ * r.units_ * r.planes_ * r.layers_;
  if (bytes > static_cast<double>(kPayloadLimit)) {
    return Status(Code::invalid_argument, "a record would be too large; store fewer engine blocks together",
                  std::to_string(bytes / (1 << 20)) + " MiB, at most 4095 MiB");
  }
  if (leaves > static_cast<double>(kLeafCountLimit)) {
    return Status(Code::invalid_argument, "a record would have too many leaves; store fewer engine blocks together",
                  std::to_string(static_cast<uint64_t>(leaves)) + ", at most " + std::to_string(kLeafCountLimit));
  }
  return r;
}

LeafExtent RecordShape::leaf(uint32_t i) const noexcept {
  LeafExtent e;
  const uint32_t piece = i % pieces_;
  i /= pieces_;
  const uint32_t group = i % groups_;
  i /= groups_;
  e.unit = i % units_;
  const uint32_t row = i / units_;
  e.plane = row % planes_;
  e.layer = row / planes_;
  e.first_head = group * heads_per_leaf_;
  e.heads = std::min(heads_per_leaf_, heads_ - e.first_head);
  e.first_token = piece * tokens_per_piece_;
  e.tokens = std::min(tokens_per_piece_, tokens_ - e.first_token);
  e.bytes = e.heads * e.tokens * row_bytes_;
  e.offset = i * unit_bytes() + e.first_head * head_bytes_ + uint64_t{e.first_token} * row_bytes_;
  return e;
}

uint32_t RecordShape::leaf_at(uint64_t offset) const noexcept {
  const uint64_t unit_row = offset / unit_bytes();
  const uint64_t in_unit = offset % unit_bytes();
  const uint64_t head = in_unit / head_bytes_;
  const uint64_t piece = pieces_ == 1 ? 0 : in_unit % head_bytes_ / row_bytes_ / tokens_per_piece_;
  return static_cast<uint32_t>((unit_row * groups_ + head / heads_per_leaf_) * pieces_ + piece);
}

}  // namespace kvbm::layout
