#include "layout/geometry.h"

#include <string>

#include "layout/record_shape.h"

namespace kvbm::layout {
namespace {

Status refuse(size_t component, const char* field, uint64_t value, const std::string& wanted) {
  return Status(
      Code::invalid_argument, "geometry refused",
      "component " + std::to_string(component) + ": " + field + " is " + std::to_string(value) + ", must be " + wanted);
}

Status check_range(size_t component, const char* field, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return {};
  return refuse(component, field, value,
                least == most ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most));
}

Status check_state(size_t i, const ComponentGeometry& c) {
  if (auto s = check_range(i, "planes", c.planes, 1, 1); !s.ok()) return s;
  if (auto s = check_range(i, "heads", c.heads, 1, 1); !s.ok()) return s;
  if (auto s = check_range(i, "head_dim", c.head_dim, 0, 0); !s.ok()) return s;
  if (c.element != Element::bytes) return refuse(i, "element", static_cast<uint64_t>(c.element), "bytes for a state");
  return check_range(i, "state_bytes", c.state_bytes, 1, kMaxStateBytes);
}

Status check_component(size_t i, const ComponentGeometry& c) {
  if (auto s = check_range(i, "kind", static_cast<uint64_t>(c.kind), 1, 4); !s.ok()) return s;
  if (auto s = check_range(i, "layers", c.layers, 1, kMaxLayers); !s.ok()) return s;
  if (auto s = check_range(i, "element", static_cast<uint64_t>(c.element), 0, kElementCount - 1); !s.ok()) return s;
  const bool windowed = c.kind == ComponentKind::sliding_window;
  if (auto s = check_range(i, "window_tokens", c.window_tokens, windowed ? 1 : 0, windowed ? UINT32_MAX : 0); !s.ok()) {
    return s;
  }
  if (c.kind == ComponentKind::state) return check_state(i, c);
  const bool latent = c.kind == ComponentKind::latent;
  if (auto s = check_range(i, "planes", c.planes, 1, latent ? 1 : 2); !s.ok()) return s;
  if (auto s = check_range(i, "heads", c.heads, 1, latent ? 1 : kMaxHeads); !s.ok()) return s;
  if (auto s = check_range(i, "state_bytes", c.state_bytes, 0, 0); !s.ok()) return s;
  // One row is never cut, so it must fit a leaf.
  return check_range(i, "head_dim", c.head_dim, 1, kLeafLimit / element_bytes(c.element));
}

// FNV-1a over the canonical encoding (README.md, Fingerprint), then the finaliser of SplitMix64, for FNV-1a mixes its
// last bytes poorly.
uint64_t fingerprint_of(uint32_t tokens, uint32_t units, std::span<const ComponentGeometry> components) noexcept {
  uint64_t z = 0xCBF29CE484222325ULL;
  const auto u8 = [&z](uint8_t v) { z = (z ^ v) * 0x100000001B3ULL; };
  const auto le = [&u8](auto v) {
    for (size_t i = 0; i < sizeof v; ++i) u8(static_cast<uint8_t>(v >> (8 * i)));
  };
  for (const char* tag = "kvbm geometry 1"; *tag != 0; ++tag) u8(static_cast<uint8_t>(*tag));
  u8(0);
  le(tokens);
  le(units);
  le(static_cast<uint32_t>(components.size()));
  for (const ComponentGeometry& c : components) {
    le(static_cast<uint32_t>(c.kind));
    le(static_cast<uint32_t>(c.element));
    le(c.layers);
    le(c.planes);
    le(c.heads);
    le(c.head_dim);
    le(c.window_tokens);
    le(c.state_bytes);
  }
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  return z == 0 ? 1 : z;
}

}  // namespace

const char* component_kind_name(ComponentKind kind) noexcept {
  switch (kind) {
    case ComponentKind::attention:
      return "attention";
    case ComponentKind::sliding_window:
      return "sliding_window";
    case ComponentKind::latent:
      return "latent";
    case ComponentKind::state:
      return "state";
  }
  return "unknown component kind";
}

ComponentGeometry attention(uint32_t layers, uint32_t heads, uint32_t head_dim, Element element) {
  return {ComponentKind::attention, layers, 2, heads, head_dim, element, 0, 0};
}

ComponentGeometry sliding_window(uint32_t layers, uint32_t heads, uint32_t head_dim, Element element,
                                 uint32_t window_tokens) {
  return {ComponentKind::sliding_window, layers, 2, heads, head_dim, element, window_tokens, 0};
}

ComponentGeometry latent(uint32_t layers, uint32_t width, Element element) {
  return {ComponentKind::latent, layers, 1, 1, width, element, 0, 0};
}

ComponentGeometry state(uint32_t layers, uint64_t state_bytes) {
  return {ComponentKind::state, layers, 1, 1, 0, Element::bytes, 0, state_bytes};
}

Result<Geometry> Geometry::make(uint32_t tokens_per_block, std::vector<ComponentGeometry> components, uint32_t units) {
  if (tokens_per_block == 0 || tokens_per_block > kMaxTokensPerBlock) {
    return Status(Code::invalid_argument, "geometry refused",
                  "tokens per block is " + std::to_string(tokens_per_block) + ", must be 1 to " +
                      std::to_string(kMaxTokensPerBlock));
  }
  if (units == 0 || units > kMaxUnits) {
    return Status(Code::invalid_argument, "geometry refused",
                  "units (engine blocks in a stored block) is " + std::to_string(units) + ", must be 1 to " +
                      std::to_string(kMaxUnits));
  }
  if (components.empty() || components.size() > kMaxComponents) {
    return Status(Code::invalid_argument, "geometry refused",
                  std::to_string(components.size()) + " components, must be 1 to " + std::to_string(kMaxComponents));
  }
  for (size_t i = 0; i < components.size(); ++i) {
    if (auto s = check_component(i, components[i]); !s.ok()) return s;
  }
  Geometry g;
  g.tokens_per_block_ = tokens_per_block;
  g.units_ = units;
  g.components_ = std::move(components);
  g.fingerprint_ = fingerprint_of(tokens_per_block, units, g.components_);
  return g;
}

uint64_t Geometry::bytes_per_token() const noexcept {
  uint64_t bytes = 0;
  for (const ComponentGeometry& c : components_) {
    bytes += uint64_t{c.layers} * c.planes * c.heads * c.head_dim * element_bytes(c.element);
  }
  return bytes;
}

}  // namespace kvbm::layout
