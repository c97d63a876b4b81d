// Shards: which part of a component a rank holds. The type itself is in base/ids.h.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "layout/geometry.h"

namespace kvbm::layout {

// Checks that the shard is a part of that component: not empty, inside its layers and heads, and with all heads when
// the component cannot be split by heads (latent, state).
Status check_shard(const Geometry& geometry, Component component, const Shard& shard);

// The whole component as one shard.
Shard whole_shard(const ComponentGeometry& component) noexcept;

// The shard of tensor-parallel rank `rank` of `size`, over layers [first_layer, first_layer + layers).
// Heads divide evenly, or size is a multiple of heads and each head is held by size / heads
// neighbouring ranks (replicated = 1). Latents and states are replicated on every rank.
Result<Shard> tensor_parallel_shard(const ComponentGeometry& component, uint32_t rank, uint32_t size,
                                    uint32_t first_layer, uint32_t layers);

// Largest tensor-parallel size that is considered.
inline constexpr uint32_t kMaxTensorParallel = 64;

// Lists, for each tensor-parallel size, the fewest shards of the same layers that together hold all heads of `shard`.
// Shards are ascending by heads; a size with `shard` as its only shard is left out. Sizes with equal shards are listed
// once, and the size with the largest shards comes first. Empty for a component that cannot be split by heads, since
// all ranks hold it under one name. `shard` must pass check_shard().
std::vector<std::vector<Shard>> shards_of_other_sizes(const ComponentGeometry& component, const Shard& shard);

}  // namespace kvbm::layout
