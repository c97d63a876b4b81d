#include "layout/engine_forms.h"

#include <algorithm>
#include <array>
#include <string>

namespace kvbm::layout {
namespace {

struct FormRow {
  const char* name;
  uint8_t count;
  std::array<Axis, 5> axes;
};

constexpr Axis B = Axis::block, L = Axis::layer, K = Axis::plane, H = Axis::head, N = Axis::token;

// Rows in the order of Form.
constexpr std::array<FormRow, kFormCount> kForms{{
    {"nhd", 4, {K, B, N, H}},
    {"hnd", 4, {K, B, H, N}},
    {"blocks_nhd", 4, {B, K, N, H}},
    {"blocks_hnd", 4, {B, K, H, N}},
    {"packed_nhd", 4, {B, N, H, K}},
    {"packed_hnd", 4, {B, H, N, K}},
    {"split_nhd", 3, {B, N, H}},
    {"split_hnd", 3, {B, H, N}},
    {"layers_nhd", 5, {L, K, B, N, H}},
    {"layers_hnd", 5, {L, K, B, H, N}},
    {"cross_nhd", 5, {B, L, K, N, H}},
    {"cross_hnd", 5, {B, L, K, H, N}},
    {"cross_packed_lnh", 5, {B, L, N, H, K}},
    {"cross_packed_lhn", 5, {B, L, H, N, K}},
    {"cross_packed_hln", 5, {B, H, L, N, K}},
    {"heads_packed", 5, {L, H, B, N, K}},
    {"sglang_layer_first", 5, {K, L, B, N, H}},
    {"sglang_page_first", 5, {K, B, N, L, H}},
    {"sglang_page_first_direct", 5, {K, B, L, N, H}},
    {"sglang_page_head", 5, {K, B, H, N, L}},
}};

const FormRow& row_of(Form form) noexcept {
  const auto i = static_cast<size_t>(form);
  return kForms[i < kForms.size() ? i : 0];
}

// Byte stride of each axis; 0 for one that is not in the order.
using Strides = std::array<uint64_t, 5>;

uint64_t axis_size(Axis axis, const RecordShape& shape, uint64_t blocks) noexcept {
  switch (axis) {
    case Axis::block:
      return blocks;
    case Axis::layer:
      return shape.layers();
    case Axis::plane:
      return shape.planes();
    case Axis::head:
      return shape.heads();
    case Axis::token:
      return shape.tokens();
  }
  return 1;
}

Result<Strides> dense_strides(std::span<const Axis> order, const RecordShape& shape, uint64_t blocks,
                              uint64_t block_stride) {
  Strides strides{};
  uint64_t total = shape.row_bytes();
  for (size_t i = order.size(); i-- > 0;) {
    uint64_t stride = total;
    if (order[i] == Axis::block && block_stride != 0) {
      if (block_stride < stride) {
        return Status(
            Code::invalid_argument, "the layout does not fit the tensors",
            "a block stride of " + std::to_string(block_stride) + " bytes, one block takes " + std::to_string(stride));
      }
      stride = block_stride;
    }
    strides[static_cast<size_t>(order[i])] = stride;
    if (__builtin_mul_overflow(stride, axis_size(order[i], shape, blocks), &total) || total > INT64_MAX) {
      return Status(Code::invalid_argument, "the layout does not fit the tensors",
                    std::to_string(blocks) + " blocks exceed 64-bit sizes");
    }
  }
  return strides;
}

bool has(std::span<const Axis> order, Axis axis) noexcept {
  for (const Axis a : order) {
    if (a == axis) return true;
  }
  return false;
}

}  // namespace

std::optional<Form> form_named(std::string_view name) noexcept {
  for (size_t i = 0; i < kForms.size(); ++i) {
    if (name == kForms[i].name) return static_cast<Form>(i);
  }
  return std::nullopt;
}

std::span<const Axis> form_axes(Form form) noexcept {
  const FormRow& row = row_of(form);
  return std::span(row.axes).first(row.count);
}

uint32_t form_tensors(Form form, const RecordShape& shape) noexcept {
  const std::span<const Axis> order = form_axes(form);
  return (has(order, L) ? 1 : shape.layers()) * (has(order, K) ? 1 : shape.planes());
}

Result<Arrangement> arrange(Form form, const RecordShape& shape, uint64_t blocks, std::span<const Tensor> tensors,
                            uint64_t block_stride) {
  if (static_cast<size_t>(form) >= kForms.size()) {
    return Status(Code::invalid_argument, "unknown form", std::to_string(static_cast<unsigned>(form)));
  }
  const std::span<const Axis> order = form_axes(form);
  const uint32_t wanted = form_tensors(form, shape);
  if (tensors.size() != wanted) {
    return Status(Code::invalid_argument, "the layout does not fit the tensors",
                  std::to_string(tensors.size()) + " tensors, this form wants " + std::to_string(wanted) + " for " +
                      std::to_string(shape.layers()) + " layers");
  }
  auto made = dense_strides(order, shape, blocks, block_stride);
  if (!made.ok()) return made.status();
  const auto stride_of = [&](Axis axis) { return made.value()[static_cast<size_t>(axis)]; };
  const uint32_t planes_per_tensor = has(order, K) ? shape.planes() : 1;
  const uint32_t tensors_per_layer = shape.planes() / planes_per_tensor;
  std::vector<PlaneView> views;
  views.reserve(size_t{shape.layers()} * shape.planes());
  for (uint32_t layer = 0; layer < shape.layers(); ++layer) {
    for (uint32_t plane = 0; plane < shape.planes(); ++plane) {
      const uint32_t tensor = (has(order, L) ? 0 : layer * tensors_per_layer) + (has(order, K) ? 0 : plane);
      const Tensor& t = tensors[tensor];
      const uint64_t offset = layer * stride_of(L) + plane * stride_of(K);
      PlaneView v;
      if (t.base != nullptr) v.base = t.base + std::min(offset, t.bytes);
      v.extent_bytes = t.bytes - std::min(offset, t.bytes);
      v.block_stride = static_cast<int64_t>(stride_of(B));
      v.head_stride = static_cast<int64_t>(stride_of(H));
      v.token_stride = static_cast<int64_t>(stride_of(N));
      views.push_back(v);
    }
  }
  return Arrangement::make(shape, blocks, std::move(views));
}

}  // namespace kvbm::layout
