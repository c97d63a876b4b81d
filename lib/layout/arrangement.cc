#include "layout/arrangement.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

namespace kvbm::layout {
namespace {

constexpr uint64_t kMaxBlocks = 1ULL << 32;  // BlockId

struct Dim {
  uint64_t count = 1;
  uint64_t stride = 0;
};
using Dims = std::array<Dim, 3>;

// The dimensions of more than one element, smallest stride first; the rest has stride 0, count 1.
Dims dims_of(const PlaneView& v, uint64_t blocks, uint32_t heads, uint32_t tokens) noexcept {
  Dims dims{Dim{blocks, static_cast<uint64_t>(v.block_stride)}, Dim{heads, static_cast<uint64_t>(v.head_stride)},
            Dim{tokens, static_cast<uint64_t>(v.token_stride)}};
  for (Dim& d : dims) {
    if (d.count == 1) d.stride = 0;
  }
  std::sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  return dims;
}

// Bytes from the first one to behind the last one, or the maximum when that does not fit 64 bits.
uint64_t reach(const Dims& dims, uint64_t row) noexcept {
  uint64_t end = row;
  for (const Dim& d : dims) {
    uint64_t far = 0;
    if (__builtin_mul_overflow(d.count - 1, d.stride, &far) || __builtin_add_overflow(end, far, &end)) {
      return std::numeric_limits<uint64_t>::max();
    }
  }
  return end;
}

// Each stride steps over everything that the smaller ones reach: then no two rows share memory.
// Every layout that is a nesting of axes has this. reach() must not have overflowed.
bool disjoint(const Dims& dims, uint64_t row) noexcept {
  uint64_t inner = row;
  for (const Dim& d : dims) {
    if (d.count == 1) continue;
    if (d.stride < inner) return false;
    inner += (d.count - 1) * d.stride;
  }
  return true;
}

// True if some row of the second of two equally strided planes certainly shares bytes with a row of the first. The
// second starts `distance` bytes later. Never true for planes that are apart.
bool collide(const Dims& dims, uint64_t row, uint64_t distance) noexcept {
  for (size_t i = dims.size(); i-- > 0;) {
    const Dim& d = dims[i];
    if (d.count == 1) continue;
    const uint64_t steps = std::min(distance / d.stride, d.count - 1);
    distance -= steps * d.stride;
    if (steps + 1 < d.count && d.stride - distance < row) return true;
  }
  return distance < row;
}

std::string place(uint32_t layer, uint32_t plane, uint32_t planes) {
  std::string text = "layer " + std::to_string(layer);
  if (planes == 2) text += plane == 0 ? " K" : " V";
  return text;
}

Status check_base(const std::byte* base, uint64_t extent, const std::string& where) {
  if (base == nullptr)
    return Status(Code::invalid_argument, "the layout does not fit the tensors", where + ": null pointer");
  if (extent > std::numeric_limits<uintptr_t>::max() - reinterpret_cast<uintptr_t>(base)) {
    return Status(Code::invalid_argument, "the layout does not fit the tensors",
                  where + ": " + std::to_string(extent) + " bytes wrap around the address space");
  }
  return {};
}

Status check_block_count(uint64_t blocks) {
  if (blocks >= 1 && blocks <= kMaxBlocks) return {};
  return Status(Code::invalid_argument, "wrong number of blocks",
                std::to_string(blocks) + ", must be 1 to " + std::to_string(kMaxBlocks));
}

Status check_ids(std::span<const BlockId> ids, uint64_t blocks) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < blocks) continue;
    return Status(Code::invalid_argument, "block id out of range",
                  "position " + std::to_string(i) + ": block " + std::to_string(ids[i]) + ", the cache has " +
                      std::to_string(blocks));
  }
  return {};
}

Status check_view(const PlaneView& v, const Dims& dims, const RecordShape& shape, uint64_t blocks,
                  const std::string& where) {
  if (auto s = check_base(v.base, v.extent_bytes, where); !s.ok()) return s;
  const uint64_t need = reach(dims, shape.row_bytes());
  if (need > v.extent_bytes) {
    return Status(Code::invalid_argument, "the layout does not fit the tensors",
                  where + " needs " + std::to_string(need) + " bytes for " + std::to_string(blocks) + " blocks of " +
                      std::to_string(shape.tokens()) + " tokens and " + std::to_string(shape.heads()) +
                      " heads, the tensor has " + std::to_string(v.extent_bytes));
  }
  if (!disjoint(dims, shape.row_bytes())) {
    return Status(Code::invalid_argument, "the layout does not fit the tensors",
                  where + ": blocks, heads or tokens overlap with strides " + std::to_string(v.block_stride) + ", " +
                      std::to_string(v.head_stride) + ", " + std::to_string(v.token_stride) + " and rows of " +
                      std::to_string(shape.row_bytes()) + " bytes");
  }
  return {};
}

bool same_strides(const PlaneView& a, const PlaneView& b) noexcept {
  return a.block_stride == b.block_stride && a.head_stride == b.head_stride && a.token_stride == b.token_stride;
}

Status check_apart(const std::vector<PlaneView>& views, const RecordShape& shape, uint64_t blocks) {
  std::vector<uint32_t> order(views.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto address = [&](uint32_t i) { return reinterpret_cast<uintptr_t>(views[i].base); };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return address(a) < address(b); });
  for (size_t i = 0; i < order.size(); ++i) {
    const PlaneView& a = views[order[i]];
    const Dims dims = dims_of(a, blocks, shape.heads(), shape.tokens());
    const uint64_t end = reach(dims, shape.row_bytes());
    for (size_t j = i + 1; j < order.size() && address(order[j]) - address(order[i]) < end; ++j) {
      const uint64_t distance = address(order[j]) - address(order[i]);
      const bool hit =
          same_strides(a, views[order[j]]) ? collide(dims, shape.row_bytes(), distance) : distance < shape.row_bytes();
      if (!hit) continue;
      const uint32_t p = shape.planes();
      return Status(Code::invalid_argument, "the layout does not fit the tensors",
                    place(order[i] / p, order[i] % p, p) + " and " + place(order[j] / p, order[j] % p, p) +
                        " overlap: they start " + std::to_string(distance) + " bytes apart");
    }
  }
  return {};
}

}  // namespace

Result<Arrangement> Arrangement::make(const RecordShape& shape, uint64_t blocks, std::vector<PlaneView> planes) {
  if (auto s = check_block_count(blocks); !s.ok()) return s;
  const uint64_t wanted = uint64_t{shape.layers()} * shape.planes();
  if (planes.size() != wanted) {
    return Status(Code::invalid_argument, "the layout does not fit the tensors",
                  std::to_string(planes.size()) + " planes for " + std::to_string(shape.layers()) +
                      " layers, must be " + std::to_string(wanted));
  }
  for (uint32_t i = 0; i < planes.size(); ++i) {
    const PlaneView& v = planes[i];
    const std::string where = place(i / shape.planes(), i % shape.planes(), shape.planes());
    if (v.block_stride < 0 || v.head_stride < 0 || v.token_stride < 0) {
      return Status(Code::invalid_argument, "the layout does not fit the tensors", where + ": negative stride");
    }
    const Dims dims = dims_of(v, blocks, shape.heads(), shape.tokens());
    if (auto s = check_view(v, dims, shape, blocks, where); !s.ok()) return s;
  }
  if (auto s = check_apart(planes, shape, blocks); !s.ok()) return s;
  Arrangement a;
  a.blocks_ = blocks;
  a.layers_ = shape.layers();
  a.planes_ = shape.planes();
  a.heads_ = shape.heads();
  a.tokens_ = shape.tokens();
  a.row_bytes_ = shape.row_bytes();
  a.views_ = std::move(planes);
  return a;
}

bool Arrangement::fits(const RecordShape& shape) const noexcept {
  return layers_ == shape.layers() && planes_ == shape.planes() && heads_ == shape.heads() &&
         tokens_ == shape.tokens() && row_bytes_ == shape.row_bytes();
}

Status Arrangement::check_blocks(std::span<const BlockId> ids) const { return check_ids(ids, blocks_); }

Result<PageArrangement> PageArrangement::make(uint64_t blocks, std::vector<PageTensor> tensors) {
  if (auto s = check_block_count(blocks); !s.ok()) return s;
  if (tensors.empty() || tensors.size() > kLeafCountLimit) {
    return Status(Code::invalid_argument, "the layout does not fit the tensors",
                  std::to_string(tensors.size()) + " tensors, must be 1 to " + std::to_string(kLeafCountLimit));
  }
  PageArrangement a;
  a.bytes_before_.assign(1, 0);
  a.leaves_before_.assign(1, 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const PageTensor& t = tensors[i];
    const std::string where = "tensor " + std::to_string(i);
    if (auto s = check_base(t.base, t.extent_bytes, where); !s.ok()) return s;
    if (t.page_bytes == 0 || t.block_stride < 0 ||
        (blocks > 1 && static_cast<uint64_t>(t.block_stride) < t.page_bytes)) {
      return Status(Code::invalid_argument, "the layout does not fit the tensors",
                    where + ": pages of " + std::to_string(t.page_bytes) + " bytes at a stride of " +
                        std::to_string(t.block_stride) + " are empty or overlap");
    }
    const Dims dims{Dim{blocks, static_cast<uint64_t>(t.block_stride)}, Dim{}, Dim{}};
    const uint64_t need = reach(dims, t.page_bytes);
    if (need > t.extent_bytes) {
      return Status(Code::invalid_argument, "the layout does not fit the tensors",
                    where + " needs " + std::to_string(need) + " bytes for " + std::to_string(blocks) +
                        " blocks, the tensor has " + std::to_string(t.extent_bytes));
    }
    const uint64_t leaves = a.leaves_before_.back() + (t.page_bytes - 1) / kLeafLimit + 1;
    // The bytes are checked first: within the limit neither sum can overflow.
    if (t.page_bytes > kPayloadLimit - a.bytes_before_.back() || leaves > kLeafCountLimit) {
      return Status(Code::invalid_argument, "a record would be too large", "at " + where);
    }
    a.bytes_before_.push_back(a.bytes_before_.back() + t.page_bytes);
    a.leaves_before_.push_back(static_cast<uint32_t>(leaves));
  }
  a.blocks_ = blocks;
  a.tensors_ = std::move(tensors);
  return a;
}

Status PageArrangement::check_units(uint32_t units) const {
  if (units >= 1 && uint64_t{units} * leaves_before_.back() <= kLeafCountLimit &&
      bytes_before_.back() <= kPayloadLimit / units) {
    return {};
  }
  return Status(Code::invalid_argument, "a record would be empty or too large; store fewer engine blocks together",
                std::to_string(units) + " blocks of " + std::to_string(bytes_before_.back()) + " bytes and " +
                    std::to_string(leaves_before_.back()) + " leaves");
}

PageLeaf PageArrangement::leaf(uint32_t i, uint32_t units) const noexcept {
  // Tensor t starts at leaf leaves_before_[t] * units, so i / units orders like the prefix sums.
  const auto it = std::upper_bound(leaves_before_.begin(), leaves_before_.end(), i / units);
  const auto tensor = static_cast<uint32_t>(it - leaves_before_.begin() - 1);
  const uint32_t per_page = leaves_before_[tensor + 1] - leaves_before_[tensor];
  const uint32_t rest = i - leaves_before_[tensor] * units;
  const uint64_t page = tensors_[tensor].page_bytes;
  PageLeaf leaf;
  leaf.tensor = tensor;
  leaf.unit = rest / per_page;
  leaf.page_offset = (rest % per_page) * kLeafLimit;
  leaf.bytes = static_cast<uint32_t>(std::min(kLeafLimit, page - leaf.page_offset));
  leaf.offset = bytes_before_[tensor] * units + leaf.unit * page + leaf.page_offset;
  return leaf;
}

Status PageArrangement::check_blocks(std::span<const BlockId> ids) const { return check_ids(ids, blocks_); }

}  // namespace kvbm::layout
