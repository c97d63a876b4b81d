// Modes for the layers and planes of a record: the configuration of a namespace or a tier.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "codec/coded/leaf_codec.h"

namespace kvbm::codec {

// The first matching rule decides; none: off.
struct Recipe {
  struct Rule {
    uint32_t first_layer = 0;
    uint32_t end_layer = UINT32_MAX;  // first layer behind it; UINT32_MAX: no end
    uint8_t planes = 3;               // bit 0: K, bit 1: V
    Mode mode = Mode::off;
    bool operator==(const Rule&) const = default;
  };
  std::vector<Rule> rules;
  // Parses rules with commas between them, each "[planes][:layers]=mode" or only a mode: planes k, v or kv, layers "3",
  // "0-3" or "4-", counted in the model. "default"; "int8"; "k:0-3=int8,v:0-3=int6,4-=int4_coded". invalid_argument
  // names the rule.
  static Result<Recipe> parse(std::string_view text);
  [[nodiscard]] Mode mode(uint32_t layer, uint32_t plane) const noexcept;
  // For bytes of unknown layer and plane: the mode if all of them have one, else `standard`, which is lossless.
  [[nodiscard]] Mode mode_of_all() const noexcept;
  [[nodiscard]] bool codes() const noexcept;  // any mode but off
  [[nodiscard]] bool lossy() const noexcept;
  bool operator==(const Recipe&) const = default;
};

}  // namespace kvbm::codec
