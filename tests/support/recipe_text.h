// A recipe as text, from which Recipe::parse() makes the same recipe again.
#pragma once

#include <cstdint>
#include <string>

#include "codec/coded/recipe.h"

namespace kvbm::test {

inline std::string text_of(const codec::Recipe& recipe) {
  std::string out;
  for (const codec::Recipe::Rule& rule : recipe.rules) {
    if (!out.empty()) out += ',';
    const bool all_layers = rule.first_layer == 0 && rule.end_layer == UINT32_MAX;
    const bool all_planes = (rule.planes & 3) == 3;
    if (!all_planes) out += (rule.planes & 1) != 0 ? "k" : "v";
    if (!all_layers) {
      if (!all_planes) out += ':';
      out += std::to_string(rule.first_layer);
      if (rule.end_layer == UINT32_MAX) {
        out += '-';
      } else if (rule.end_layer != rule.first_layer + 1) {
        out += '-' + std::to_string(rule.end_layer - 1);
      }
    }
    if (!all_layers || !all_planes) out += '=';
    out += codec::mode_name(rule.mode);
  }
  return out.empty() ? "off" : out;
}

}  // namespace kvbm::test
