// Facts that both sides of a session must agree on, and a rank's description of its part of it. Plain values. Block
// sizes, orders and parallel shapes are not facts: they may differ.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "layout/geometry.h"

namespace kvbm::cluster::session {

// Name of a request on every rank of both sides. The engine chooses it and never reuses it.
struct RequestId {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const RequestId&) const = default;
};

// Name of weights and adapter: any 16 bytes that are equal exactly where KV means the same.
using ModelId = std::array<uint8_t, 16>;

struct Facts {
  ModelId model{};
  std::vector<layout::ComponentGeometry> components;
  std::string model_name{};  // the user's name for it; for messages only, and empty for models of another node
  bool operator==(const Facts& o) const { return model == o.model && components == o.components; }
};

// Compares facts. mismatch: names the first fact that differs and both values; `theirs` belongs to `peer`.
Status check_same(const Facts& mine, const Facts& theirs, std::string_view peer);
// Returns the other side's text of check_same(), with this side's name of the model, which it could not know.
std::string with_model_name(std::string text, const Facts& mine);
// Checks that layout accepts these components (limits of layout/geometry.h).
Status check_facts(const Facts& facts);
// Returns 64 bits over all facts, which stand for them in messages. FNV-1a over their encoding in OPEN.
uint64_t facts_hash(const Facts& facts) noexcept;

// Positions of a component: tokens of the request; of a state, the bytes 0 to state_bytes of the one
// state that belongs to the end of the request's tokens.
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  [[nodiscard]] uint64_t size() const noexcept { return end - begin; }
  [[nodiscard]] bool empty() const noexcept { return begin >= end; }
  [[nodiscard]] bool holds(const Range& o) const noexcept { return begin <= o.begin && o.end <= end; }
  bool operator==(const Range&) const = default;
};

// Beyond any context length; and no sum of positions and block sizes exceeds 64 bits.
inline constexpr uint64_t kMaxPosition = 1ULL << 40;

// Part of one component that a rank holds, or wants: these layers and heads of the model at these positions.
struct Part {
  Component component = 0;
  Shard shard;
  Range range;
  bool operator==(const Part&) const = default;
};

// Checks that parts are ascending by component, each at most once, inside the model and not empty.
Status check_parts(const Facts& facts, std::span<const Part> parts, std::string_view whose);

// Bytes of one head at one position.
inline uint32_t row_bytes(const layout::ComponentGeometry& c) noexcept {
  return c.kind == layout::ComponentKind::state ? 1 : c.head_dim * layout::element_bytes(c.element);
}

}  // namespace kvbm::cluster::session
