// Arrangement: how an engine's attached cache lays a shard out in memory. Belongs to an attached
// cache, never enters a key. Immutable once made; any thread. It owns nothing of the memory.
//
// Invariant: for every block id below blocks(), every byte of every plane lies inside the plane's
// extent, and no two elements of one plane share memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "layout/record_shape.h"

namespace kvbm::layout {

// Engine block ids are 32-bit in every engine read (engines.md, section 1).
using BlockId = uint32_t;

// One (layer, plane) of the cache. Element (block, head, token) starts at
// base + block * block_stride + head * head_stride + token * token_stride; its row is contiguous.
// Strides are not negative. A state has one head and one "token" per byte: token_stride 1.
struct PlaneView {
  std::byte* base = nullptr;
  uint64_t extent_bytes = 0;  // bytes from base that belong to the tensor
  int64_t block_stride = 0;
  int64_t head_stride = 0;
  int64_t token_stride = 0;
};

class Arrangement {
 public:
  // `planes` in the order [layer][plane] of the shape. Only heads, tokens and row of the shape
  // matter, so one arrangement serves records of any number of units. Refusals name the layer
  // and plane, what the layout needs and what is there.
  static Result<Arrangement> make(const RecordShape& shape, uint64_t blocks, std::vector<PlaneView> planes);

  [[nodiscard]] uint64_t blocks() const noexcept { return blocks_; }
  [[nodiscard]] uint32_t layers() const noexcept { return layers_; }
  [[nodiscard]] uint32_t planes() const noexcept { return planes_; }
  [[nodiscard]] uint32_t heads() const noexcept { return heads_; }
  [[nodiscard]] uint32_t tokens() const noexcept { return tokens_; }
  [[nodiscard]] uint32_t row_bytes() const noexcept { return row_bytes_; }
  [[nodiscard]] const PlaneView& view(uint32_t layer, uint32_t plane) const noexcept {
    return views_[static_cast<size_t>(layer) * planes_ + plane];
  }
  // Returns true if records of `shape` can be gathered from these pages: layers, planes, heads, tokens and rows are
  // equal.
  [[nodiscard]] bool fits(const RecordShape& shape) const noexcept;
  // Checks that every id is below blocks(). The refusal names the position and the id.
  [[nodiscard]] Status check_blocks(std::span<const BlockId> ids) const;

 private:
  Arrangement() = default;

  uint64_t blocks_ = 0;
  uint32_t layers_ = 0, planes_ = 0, heads_ = 0, tokens_ = 0, row_bytes_ = 0;
  std::vector<PlaneView> views_;
};

// Engine-defined bytes: a block is one page in each of n tensors. Canonical form: [tensor][unit]
// pages one after the other, each page cut at kLeafLimit. Flagged opaque, never re-sliced.
struct PageTensor {
  std::byte* base = nullptr;
  uint64_t extent_bytes = 0;
  int64_t block_stride = 0;  // >= page_bytes
  uint64_t page_bytes = 0;
};

struct PageLeaf {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t tensor = 0;
  uint32_t unit = 0;
  uint64_t page_offset = 0;
  bool operator==(const PageLeaf&) const = default;
};

class PageArrangement {
 public:
  static Result<PageArrangement> make(uint64_t blocks, std::vector<PageTensor> tensors);

  [[nodiscard]] uint64_t blocks() const noexcept { return blocks_; }
  [[nodiscard]] std::span<const PageTensor> tensors() const noexcept { return tensors_; }
  [[nodiscard]] uint64_t payload_bytes(uint32_t units) const noexcept { return bytes_before_.back() * units; }
  [[nodiscard]] uint32_t leaf_count(uint32_t units) const noexcept { return leaves_before_.back() * units; }
  // Checks that a record of `units` units stays within kLeafCountLimit and kPayloadLimit.
  [[nodiscard]] Status check_units(uint32_t units) const;
  // Requires i < leaf_count(units). Takes O(log tensors).
  [[nodiscard]] PageLeaf leaf(uint32_t i, uint32_t units) const noexcept;
  [[nodiscard]] Status check_blocks(std::span<const BlockId> ids) const;

 private:
  PageArrangement() = default;

  uint64_t blocks_ = 0;
  std::vector<PageTensor> tensors_;
  std::vector<uint64_t> bytes_before_;  // n + 1 prefix sums over one unit
  std::vector<uint32_t> leaves_before_;
};

}  // namespace kvbm::layout
