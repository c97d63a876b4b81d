#include "support/session_shapes.h"

#include <algorithm>
#include <cstring>

#include "layout/shard.h"

namespace kvbm::test {

using cluster::session::Facts;
using cluster::session::LocalPart;
using cluster::session::Part;
using cluster::session::Range;
using layout::Axis;
using layout::ComponentGeometry;
using layout::ComponentKind;

void truth_row(uint64_t seed, uint32_t component, uint64_t layer, uint64_t plane, uint64_t head, uint64_t position,
               std::byte* out, uint32_t bytes) {
  const uint64_t place = (((seed * 31 + component) * 4099 + layer) * 2 + plane) * 4099 + head;
  SeededRandom row(place * 0x9E3779B97F4A7C15ULL + position);
  row.fill({out, bytes});
  // As a cache's numbers are: of odd seeds their exponents are few, so that coding makes them smaller.
  if (seed % 2 == 0) return;
  for (uint32_t i = 1; i < bytes; i += 2) out[i] = (out[i] & std::byte{0x81}) | std::byte{0x3E};
}

RankCache::RankCache(const Facts& facts, const Part& part, layout::Form form, uint32_t block_tokens, uint64_t first,
                     Random& random, std::pmr::memory_resource* memory)
    : facts_(facts), part_(part), form_(form), first_(first) {
  const ComponentGeometry& c = facts.components[part.component];
  const bool state = c.kind == ComponentKind::state;
  const auto geometry = layout::Geometry::make(block_tokens, facts.components);
  const auto shape = layout::RecordShape::make(geometry.value(), part.component, part.shard, 1).value();
  tokens_ = state ? static_cast<uint32_t>(c.state_bytes) : block_tokens;
  row_bytes_ = cluster::session::row_bytes(c);
  planes_ = c.planes;
  const uint64_t used = (part.range.end - first + tokens_ - 1) / tokens_;
  blocks_ = used + random.below(4);
  std::vector<layout::BlockId> all(blocks_);
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  if (random.below(4) == 0) std::sort(all.begin(), all.end());  // neighbours lie side by side
  ids_.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(used));
  const uint32_t n = layout::form_tensors(form, shape);
  const uint64_t total = blocks_ * shape.unit_bytes() * shape.planes() * shape.layers();
  std::vector<layout::Tensor> tensors;
  for (uint32_t i = 0; i < n; ++i) {
    const std::span<std::byte> bytes = memory_.emplace_back(total / n, memory).all();
    random.fill(bytes);
    before_.emplace_back(bytes.begin(), bytes.end());
    tensors.push_back({bytes.data(), bytes.size()});
  }
  arrangement_ = std::make_unique<layout::Arrangement>(layout::arrange(form, shape, blocks_, tensors).value());
}

LocalPart RankCache::local() const { return {part_, {arrangement_.get(), ids_, first_}}; }

std::byte* RankCache::row(uint64_t layer, uint64_t plane, uint64_t head, uint64_t position) const {
  const uint64_t local_layer = layer - part_.shard.first_layer;
  const uint64_t at = position - first_;
  uint64_t index = 0;
  bool has_layer = false, has_plane = false;
  for (const Axis a : layout::form_axes(form_)) {
    switch (a) {
      case Axis::block:
        index = index * blocks_ + ids_[at / tokens_];
        break;
      case Axis::layer:
        index = index * part_.shard.layers + local_layer;
        has_layer = true;
        break;
      case Axis::plane:
        index = index * planes_ + plane;
        has_plane = true;
        break;
      case Axis::head:
        index = index * part_.shard.heads + (head - part_.shard.first_head);
        break;
      case Axis::token:
        index = index * tokens_ + at % tokens_;
        break;
    }
  }
  uint64_t tensor = has_layer ? 0 : local_layer;
  if (!has_plane) tensor = tensor * planes_ + plane;
  return memory_[tensor].all().data() + index * row_bytes_;
}

void RankCache::fill(uint64_t seed, uint32_t layer, Range range) {
  for (uint64_t p = 0; p < planes_; ++p)
    for (uint64_t h = part_.shard.first_head; h < uint64_t{part_.shard.first_head} + part_.shard.heads; ++h)
      for (uint64_t t = range.begin; t < range.end; ++t)
        truth_row(seed, part_.component, layer, p, h, t, row(layer, p, h, t), row_bytes_);
}

std::string RankCache::check_layer(uint64_t seed, uint32_t layer) const {
  std::vector<std::byte> want(row_bytes_);
  for (uint64_t p = 0; p < planes_; ++p)
    for (uint64_t h = part_.shard.first_head; h < uint64_t{part_.shard.first_head} + part_.shard.heads; ++h)
      for (uint64_t t = part_.range.begin; t < part_.range.end; ++t) {
        truth_row(seed, part_.component, layer, p, h, t, want.data(), row_bytes_);
        if (std::memcmp(want.data(), row(layer, p, h, t), row_bytes_) == 0) continue;
        return "component " + std::to_string(part_.component) + " layer " + std::to_string(layer) + " plane " +
               std::to_string(p) + " head " + std::to_string(h) + " position " + std::to_string(t);
      }
  return {};
}

std::string RankCache::check(uint64_t seed) const {
  for (uint32_t l = part_.shard.first_layer; l < uint32_t{part_.shard.first_layer} + part_.shard.layers; ++l) {
    if (auto wrong = check_layer(seed, l); !wrong.empty()) return wrong;
  }
  // Nothing else was written: put back what the range held before, then all must be as it was.
  std::vector<std::vector<std::byte>> now;
  for (const ResourceBytes& memory : memory_) now.emplace_back(memory.all().begin(), memory.all().end());
  for (uint64_t l = part_.shard.first_layer; l < uint64_t{part_.shard.first_layer} + part_.shard.layers; ++l)
    for (uint64_t p = 0; p < planes_; ++p)
      for (uint64_t h = part_.shard.first_head; h < uint64_t{part_.shard.first_head} + part_.shard.heads; ++h)
        for (uint64_t t = part_.range.begin; t < part_.range.end; ++t) {
          const std::byte* at = row(l, p, h, t);
          for (size_t i = 0; i < memory_.size(); ++i) {
            const std::span<std::byte> memory = memory_[i].all();
            if (at < memory.data() || at >= memory.data() + memory.size()) continue;
            const auto offset = static_cast<size_t>(at - memory.data());
            std::memcpy(now[i].data() + offset, before_[i].data() + offset, row_bytes_);
          }
        }
  return now == before_ ? "" : "bytes outside of the range were written";
}

std::vector<LocalPart> RankEngine::locals() const {
  std::vector<LocalPart> out;
  for (const auto& c : caches) {
    out.push_back(c->local());
    out.back().map.mover = mover;
  }
  return out;
}

std::vector<Part> RankEngine::parts() const {
  std::vector<Part> out;
  for (const auto& c : caches) out.push_back(c->part());
  return out;
}

void RankEngine::fill_all(uint64_t seed) {
  for (auto& c : caches) {
    const Shard& s = c->part().shard;
    for (uint32_t l = s.first_layer; l < uint32_t{s.first_layer} + s.layers; ++l) c->fill(seed, l, c->part().range);
  }
}

std::string RankEngine::check(uint64_t seed) const {
  for (const auto& c : caches) {
    if (auto wrong = c->check(seed); !wrong.empty()) return wrong;
  }
  return {};
}

Facts random_facts(Random& random, bool large) {
  using layout::Element;
  static constexpr Element kElements[] = {Element::bf16, Element::fp16, Element::fp32, Element::fp8_e4m3,
                                          Element::int8};
  Facts facts;
  facts.model[0] = 7;
  const uint64_t n = 1 + random.below(3);
  for (uint64_t i = 0; i < n; ++i) {
    const auto layers = static_cast<uint32_t>(1 + random.below(4));
    const uint32_t heads = 1U << random.below(4);
    const auto dim = static_cast<uint32_t>(large ? 32U << random.below(3) : 1 + random.below(9));
    const Element element = kElements[random.below(5)];
    switch (random.below(large ? 4 : 5)) {
      case 0:
        facts.components.push_back(layout::latent(layers, dim * 4, element));
        break;
      case 1:
        facts.components.push_back(
            layout::sliding_window(layers, heads, dim, element, 1 + static_cast<uint32_t>(random.below(40))));
        break;
      case 4:
        facts.components.push_back(layout::state(layers, random.below(8) == 0 ? 140'000 : 1 + random.below(2000)));
        break;
      default:
        facts.components.push_back(layout::attention(layers, heads, dim, element));
    }
    if (facts.components.back().kind == ComponentKind::attention && random.below(6) == 0) {
      facts.components.back().planes = 1;
    }
  }
  return facts;
}

SideShape random_side(const Facts& facts, Random& random, uint64_t tokens) {
  static constexpr uint32_t kBlocks[] = {1, 3, 8, 16, 32, 64};
  SideShape s;
  s.tp = 1U << random.below(4);
  s.pp = 1 + static_cast<uint32_t>(random.below(facts.components[0].layers));
  s.block_tokens = kBlocks[random.below(6)];
  s.form = static_cast<layout::Form>(random.below(layout::kFormCount));
  s.mixed_forms = random.below(3) == 0;
  s.begin = random.below(3) == 0 ? random.below(tokens) : 0;
  return s;
}

std::vector<RankEngine> make_side(const Facts& facts, const SideShape& shape, uint64_t tokens, Random& random,
                                  std::pmr::memory_resource* memory) {
  std::vector<RankEngine> side;
  for (uint32_t stage = 0; stage < shape.pp; ++stage) {
    for (uint32_t rank = 0; rank < shape.tp; ++rank) {
      RankEngine engine;
      for (uint32_t i = 0; i < facts.components.size(); ++i) {
        const ComponentGeometry& c = facts.components[i];
        const uint32_t l0 = stage * c.layers / shape.pp;
        const uint32_t l1 = (stage + 1) * c.layers / shape.pp;
        if (l0 == l1) continue;
        Part part;
        part.component = static_cast<Component>(i);
        part.shard = layout::tensor_parallel_shard(c, rank, shape.tp, l0, l1 - l0).value();
        part.range = {shape.begin, tokens};
        if (c.kind == ComponentKind::state) part.range = {0, c.state_bytes};
        if (c.kind == ComponentKind::sliding_window) {
          part.range.begin = std::max(shape.begin, tokens - std::min<uint64_t>(tokens, c.window_tokens));
        }
        // Blocks begin at a multiple of their size, or at the range itself.
        uint64_t first = part.range.begin - part.range.begin % shape.block_tokens;
        if (c.kind == ComponentKind::state)
          first = 0;
        else if (random.below(4) == 0)
          first = part.range.begin;
        const auto form = shape.mixed_forms ? static_cast<layout::Form>(random.below(layout::kFormCount)) : shape.form;
        engine.caches.push_back(
            std::make_unique<RankCache>(facts, part, form, shape.block_tokens, first, random, memory));
      }
      if (!engine.caches.empty()) side.push_back(std::move(engine));
    }
  }
  return side;
}

}  // namespace kvbm::test
