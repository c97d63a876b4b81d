// The layouts that engines are known to use, as arrangements from tensor base pointers.
//
// Every one of them is an order of the axes block, layer, plane (K or V), head and token, outermost
// first, each dense, with the head's row (dim) innermost. An axis that is missing is split over
// tensors: one per layer, one per plane, or [layer][plane] when both are missing. "Packed content"
// (vLLM: K then V inside one row of 2 * head_dim) is the plane axis in the last place.
// Source of the forms: vLLM 0.32, SGLang 0.5.23, TensorRT-LLM; see README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "layout/arrangement.h"

namespace kvbm::layout {

enum class Axis : uint8_t { block, layer, plane, head, token };

enum class Form : uint8_t {
  // Forms with one tensor for each layer.
  nhd,         // (2, blocks, tokens, heads, dim)
  hnd,         // (2, blocks, heads, tokens, dim)
  blocks_nhd,  // (blocks, 2, tokens, heads, dim)
  blocks_hnd,  // (blocks, 2, heads, tokens, dim)
  packed_nhd,  // (blocks, tokens, heads, 2 * dim)
  packed_hnd,  // (blocks, heads, tokens, 2 * dim); vLLM 0.32 LBHNC
  // Forms with one tensor for each layer and plane: K0, V0, K1, V1, ...
  split_nhd,  // (blocks, tokens, heads, dim)
  split_hnd,  // (blocks, heads, tokens, dim)
  // Forms with one tensor for all layers.
  layers_nhd,                // (layers, 2, blocks, tokens, heads, dim)
  layers_hnd,                // (layers, 2, blocks, heads, tokens, dim)
  cross_nhd,                 // (blocks, layers, 2, tokens, heads, dim)
  cross_hnd,                 // (blocks, layers, 2, heads, tokens, dim)
  cross_packed_lnh,          // (blocks, layers, tokens, heads, 2 * dim); vLLM BLNHC
  cross_packed_lhn,          // (blocks, layers, heads, tokens, 2 * dim); vLLM BLHNC
  cross_packed_hln,          // (blocks, heads, layers, tokens, 2 * dim); vLLM BHLNC
  heads_packed,              // (layers, heads, blocks, tokens, 2 * dim); vLLM LHBNC
  sglang_layer_first,        // (2, layers, blocks * tokens, heads, dim)
  sglang_page_first,         // (2, blocks * tokens, layers, heads, dim)
  sglang_page_first_direct,  // (2, blocks, layers, tokens, heads, dim)
  sglang_page_head,          // (2, blocks, heads, tokens, layers, dim)
};
inline constexpr uint8_t kFormCount = 20;

// Returns the form of a name, as `kvbm session` takes it.
std::optional<Form> form_named(std::string_view name) noexcept;
// The axes of a form, outermost first.
std::span<const Axis> form_axes(Form form) noexcept;

struct Tensor {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
};

// Number of tensors that a form needs for that shape.
uint32_t form_tensors(Form form, const RecordShape& shape) noexcept;

// Makes the arrangement of a form. A component of one plane (latent, state) drops the plane axis: any form fits, e.g.
// nhd for a per-layer MLA cache (blocks, tokens, width). `block_stride` is in bytes, for padded blocks or tensors
// shared by several components; 0 = dense. Refused if it is smaller than what the axes inside block take: blocks may
// not overlap.
Result<Arrangement> arrange(Form form, const RecordShape& shape, uint64_t blocks, std::span<const Tensor> tensors,
                            uint64_t block_stride = 0);

}  // namespace kvbm::layout
