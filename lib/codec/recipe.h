// Which mode for which layers and planes of a record: what a namespace or a tier is configured with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "codec/leaf_codec.h"

namespace kvbm::codec {

// The first rule that holds decides; none: off.
struct Recipe {
  struct Rule {
    uint32_t first_layer = 0;
    uint32_t end_layer = UINT32_MAX;  // not of it any more; UINT32_MAX: no end
    uint8_t planes = 3;               // bit 0: K, bit 1: V
    Mode mode = Mode::off;
    bool operator==(const Rule&) const = default;
  };
  std::vector<Rule> rules;
  // Rules with commas between them, each "[planes][:layers]=mode" or a mode alone: planes k, v or kv, layers "3", "0-3"
  // or "4-", counted in the model. "default"; "int8"; "k:0-3=int8,v:0-3=int6,4-=int4_coded". invalid_argument names the
  // rule.
  static Result<Recipe> parse(std::string_view text);
  [[nodiscard]] std::string text() const;  // parse() gives the same recipe again
  [[nodiscard]] Mode mode(uint32_t layer, uint32_t plane) const noexcept;
  // For what is of no known layer and plane: the mode that holds for each of them, else `standard`, which loses nothing.
  [[nodiscard]] Mode mode_of_all() const noexcept;
  [[nodiscard]] bool codes() const noexcept;  // anything at all
  [[nodiscard]] bool lossy() const noexcept;
  bool operator==(const Recipe&) const = default;
};

}  // namespace kvbm::codec
