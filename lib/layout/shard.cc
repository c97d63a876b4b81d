#include "layout/shard.h"

#include <string>
#include <utility>

namespace kvbm::layout {
namespace {

std::string range_text(const char* what, uint32_t first, uint32_t count, uint32_t total) {
  return std::string(what) + " " + std::to_string(first) + " to " + std::to_string(first + count) +
         " (end excluded), the component has " + std::to_string(total);
}

bool splits_by_heads(const ComponentGeometry& c) noexcept {
  return c.kind == ComponentKind::attention || c.kind == ComponentKind::sliding_window;
}

}  // namespace

Status check_shard(const Geometry& geometry, Component component, const Shard& shard) {
  const ComponentGeometry* c = geometry.component(component);
  if (c == nullptr) {
    return Status(Code::invalid_argument, "no such component",
                  "component " + std::to_string(component) + ", the geometry has " +
                      std::to_string(geometry.components().size()));
  }
  if (shard.layers == 0 || uint32_t{shard.first_layer} + shard.layers > c->layers) {
    return Status(Code::invalid_argument, "shard is empty or outside of the model",
                  range_text("layers", shard.first_layer, shard.layers, c->layers));
  }
  if (shard.heads == 0 || uint32_t{shard.first_head} + shard.heads > c->heads) {
    return Status(Code::invalid_argument, "shard is empty or outside of the model",
                  range_text("heads", shard.first_head, shard.heads, c->heads));
  }
  if (shard.replicated > 1) {
    return Status(Code::invalid_argument, "shard.replicated must be 0 or 1",
                  "it is " + std::to_string(shard.replicated));
  }
  return {};
}

Shard whole_shard(const ComponentGeometry& c) noexcept {
  return {0, static_cast<uint16_t>(c.layers), 0, static_cast<uint16_t>(c.heads),
          static_cast<uint16_t>(splits_by_heads(c) ? 0 : 1)};
}

Result<Shard> tensor_parallel_shard(const ComponentGeometry& c, uint32_t rank, uint32_t size, uint32_t first_layer,
                                    uint32_t layers) {
  if (size == 0 || rank >= size) {
    return Status(Code::invalid_argument, "no such tensor-parallel rank",
                  "rank " + std::to_string(rank) + " of " + std::to_string(size));
  }
  if (layers == 0 || layers > c.layers || first_layer > c.layers - layers || c.layers > kMaxLayers) {
    return Status(Code::invalid_argument, "shard is empty or outside of the model",
                  range_text("layers", first_layer, layers, c.layers));
  }
  Shard shard = whole_shard(c);
  shard.first_layer = static_cast<uint16_t>(first_layer);
  shard.layers = static_cast<uint16_t>(layers);
  if (!splits_by_heads(c)) return shard;
  if (c.heads % size == 0) {
    shard.heads = static_cast<uint16_t>(c.heads / size);
    shard.first_head = static_cast<uint16_t>(rank * shard.heads);
    return shard;
  }
  if (c.heads == 0 || size % c.heads != 0) {
    return Status(Code::invalid_argument, "KV heads do not divide over the tensor-parallel ranks",
                  std::to_string(c.heads) + " heads over " + std::to_string(size) + " ranks");
  }
  shard.heads = 1;
  shard.first_head = static_cast<uint16_t>(rank / (size / c.heads));
  shard.replicated = 1;
  return shard;
}

std::vector<std::vector<Shard>> shards_of_other_sizes(const ComponentGeometry& c, const Shard& shard) {
  std::vector<std::vector<Shard>> out;
  if (!splits_by_heads(c)) return out;
  bool replicated = false;
  for (uint32_t size = 1; size <= kMaxTensorParallel; ++size) {
    std::vector<Shard> shards;
    for (uint32_t rank = 0; rank < size; ++rank) {
      const auto one = tensor_parallel_shard(c, rank, size, shard.first_layer, shard.layers);
      if (!one.ok()) break;  // heads do not divide over that many ranks
      const Shard& has = one.value();
      const bool overlaps =
          has.first_head < shard.first_head + shard.heads && shard.first_head < has.first_head + has.heads;
      // Neighbouring ranks hold one replicated head under one name.
      if (overlaps && (shards.empty() || shards.back() != has)) shards.push_back(has);
    }
    if (shards.empty() || (shards.size() == 1 && shards[0] == shard)) continue;
    if (shards[0].replicated != 0 && std::exchange(replicated, true)) continue;  // every such size has the same shards
    out.push_back(std::move(shards));
  }
  return out;
}

}  // namespace kvbm::layout
