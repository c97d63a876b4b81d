// Geometry: the facts of a model that give the canonical bytes of its blocks their meaning.
// Immutable once made; plain values, any thread. What an engine's memory looks like is not here
// (arrangement.h), nor which part of the model a rank holds (shard.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "layout/element.h"

namespace kvbm::layout {

// Numbers are part of the fingerprint and never change.
enum class ComponentKind : uint8_t { attention = 1, sliding_window = 2, latent = 3, state = 4 };
const char* component_kind_name(ComponentKind kind) noexcept;

// Limits that keep every size in this layer within 64 bits and every payload offset within 32.
// Wider than any published model by an order of magnitude.
inline constexpr uint32_t kMaxComponents = 16;
inline constexpr uint32_t kMaxLayers = 4096;
inline constexpr uint32_t kMaxHeads = 4096;
inline constexpr uint32_t kMaxTokensPerBlock = 4096;
inline constexpr uint32_t kMaxUnits = 4096;
inline constexpr uint64_t kMaxStateBytes = 1ULL << 31;

struct ComponentGeometry {
  ComponentKind kind = ComponentKind::attention;
  uint32_t layers = 0;    // of the whole model
  uint32_t planes = 2;    // 2 = K and V, 1 = a latent or a state
  uint32_t heads = 0;     // KV heads of the whole model; 1 for a latent or a state
  uint32_t head_dim = 0;  // elements of one head of one token; the latent's width; 0 for a state
  Element element = Element::bf16;
  uint32_t window_tokens = 0;  // sliding_window only
  uint64_t state_bytes = 0;    // state only: bytes of one layer of one block
  bool operator==(const ComponentGeometry&) const = default;
};

ComponentGeometry attention(uint32_t layers, uint32_t heads, uint32_t head_dim, Element element);
ComponentGeometry sliding_window(uint32_t layers, uint32_t heads, uint32_t head_dim, Element element,
                                 uint32_t window_tokens);
ComponentGeometry latent(uint32_t layers, uint32_t width, Element element);
ComponentGeometry state(uint32_t layers, uint64_t state_bytes);

class Geometry {
 public:
  // A stored block is `units` consecutive engine blocks of `tokens_per_block` tokens each.
  // invalid_argument with the component, the field, its value and its limit when refused.
  static Result<Geometry> make(uint32_t tokens_per_block, std::vector<ComponentGeometry> components,
                               uint32_t units = 1);

  [[nodiscard]] uint32_t tokens_per_block() const noexcept { return tokens_per_block_; }
  [[nodiscard]] uint32_t units() const noexcept { return units_; }
  [[nodiscard]] uint32_t tokens_per_stored_block() const noexcept { return tokens_per_block_ * units_; }
  [[nodiscard]] std::span<const ComponentGeometry> components() const noexcept { return components_; }
  // Returns null if there is no such component.
  [[nodiscard]] const ComponentGeometry* component(Component index) const noexcept {
    return index < components_.size() ? &components_[index] : nullptr;
  }
  // Bytes that one token takes in all attention-like components (states excluded).
  [[nodiscard]] uint64_t bytes_per_token() const noexcept;

  // 64 bits over everything that changes what canonical bytes mean; never 0 (0 means opaque).
  // Encoding: README.md, Fingerprint (normative); vectors: tests/data/vectors/layout.json.
  [[nodiscard]] uint64_t fingerprint() const noexcept { return fingerprint_; }

  bool operator==(const Geometry&) const = default;

 private:
  Geometry() = default;

  uint32_t tokens_per_block_ = 0;
  uint32_t units_ = 1;
  std::vector<ComponentGeometry> components_;
  uint64_t fingerprint_ = 0;
};

}  // namespace kvbm::layout
