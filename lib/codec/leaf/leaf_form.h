// Form of a leaf's bytes: facts that a coder needs and a record does not contain.
#pragma once

#include <cstdint>

namespace kvbm::codec {

// Values equal those of layout::Element; capi asserts it, since codec and layout do not include each other.
enum class Element : uint8_t { bytes = 0, bf16 = 1, fp16 = 2, fp32 = 3, fp8_e4m3 = 4, fp8_e5m2 = 5, int8 = 6 };

// The bytes are rows of `row` elements: one head of one token (head_dim). Heads follow one another, `rows` rows each,
// so a channel is (head, place in the row). 0: unknown.
struct LeafForm {
  Element element = Element::bytes;
  uint32_t row = 0;
  uint32_t rows = 0;
  uint8_t depth = 0;  // 0, 1, 2: third of the model's layers; lossy modes that use it may lose more in later ones
  bool operator==(const LeafForm&) const = default;
};

// The form of each leaf of a record, by arithmetic: leaves in payload order, [layer][plane][leaves of a plane].
struct RecordForm {
  Element element = Element::bytes;
  uint32_t row = 0;
  uint32_t rows = 0;
  uint32_t planes = 1;            // 2: K, then V
  uint32_t leaves_per_plane = 0;  // 0: unknown, every leaf is of layer 0 and plane 0
  uint32_t first_layer = 0;       // of the shard, in the model
  uint32_t layers = 0;            // of the model; 0: unknown, every leaf is of depth 0
  [[nodiscard]] LeafForm leaf_form() const noexcept { return {element, row, rows}; }
  [[nodiscard]] LeafForm leaf_form(uint32_t leaf) const noexcept {
    const uint64_t third = layers == 0 ? 0 : uint64_t{3} * layer(leaf) / layers;
    return {element, row, rows, static_cast<uint8_t>(third < 2 ? third : 2)};
  }
  [[nodiscard]] uint32_t plane(uint32_t leaf) const noexcept {
    return leaves_per_plane == 0 ? 0 : leaf / leaves_per_plane % planes;
  }
  [[nodiscard]] uint32_t layer(uint32_t leaf) const noexcept {
    return leaves_per_plane == 0 ? 0 : first_layer + leaf / leaves_per_plane / planes;
  }
};

}  // namespace kvbm::codec
