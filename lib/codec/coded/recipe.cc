#include "codec/coded/recipe.h"

#include <algorithm>
#include <charconv>

namespace kvbm::codec {
namespace {

constexpr size_t kMaxRules = 64;  // searched once a leaf
constexpr uint32_t kNoEnd = UINT32_MAX;

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool parse_number(std::string_view text, uint32_t& out) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out < kNoEnd - 1;
}

// Parses "3", "0-3", "4-". Returns null, or the fault.
const char* parse_layers(std::string_view text, Recipe::Rule& rule) noexcept {
  const size_t dash = text.find('-');
  uint32_t last = 0;
  if (!parse_number(text.substr(0, dash), rule.first_layer)) return "layers are a number, a range 0-3, or 4-";
  if (dash == std::string_view::npos) {
    rule.end_layer = rule.first_layer + 1;
    return nullptr;
  }
  if (dash + 1 == text.size()) return nullptr;
  if (!parse_number(text.substr(dash + 1), last)) return "layers are a number, a range 0-3, or 4-";
  if (last < rule.first_layer) return "its layers end before they begin";
  rule.end_layer = last + 1;
  return nullptr;
}

const char* parse_planes(std::string_view text, Recipe::Rule& rule) noexcept {
  if (text == "k") {
    rule.planes = 1;
  } else if (text == "v") {
    rule.planes = 2;
  } else if (text != "kv") {
    return "planes are k, v or kv";
  }
  return nullptr;
}

const char* parse_places(std::string_view text, Recipe::Rule& rule) noexcept {
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    const char* const fault = parse_planes(trimmed(text.substr(0, colon)), rule);
    return fault != nullptr ? fault : parse_layers(trimmed(text.substr(colon + 1)), rule);
  }
  if (!text.empty() && text.front() >= '0' && text.front() <= '9') return parse_layers(text, rule);
  return parse_planes(text, rule);
}

const char* parse_rule(std::string_view text, Recipe::Rule& rule) noexcept {
  const size_t equal = text.find('=');
  const std::string_view name = equal == std::string_view::npos ? text : trimmed(text.substr(equal + 1));
  const auto mode = mode_by_name(name);
  if (!mode) return "no such mode";
  rule.mode = *mode;
  return equal == std::string_view::npos ? nullptr : parse_places(trimmed(text.substr(0, equal)), rule);
}

}  // namespace

Result<Recipe> Recipe::parse(std::string_view text) {
  Recipe recipe;
  for (size_t number = 1;; ++number) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view one = trimmed(text.substr(0, comma));
    Rule rule;
    const char* const fault = number > kMaxRules ? "more than 64 rules" : parse_rule(one, rule);
    if (fault != nullptr) {
      return Status{Code::invalid_argument, "the recipe for coding is wrong",
                    "rule " + std::to_string(number) + " (\"" + std::string(one.substr(0, 40)) + "\"): " + fault};
    }
    recipe.rules.push_back(rule);
    if (comma == text.size()) return recipe;
    text.remove_prefix(comma + 1);
  }
}

Mode Recipe::mode(uint32_t layer, uint32_t plane) const noexcept {
  for (const Rule& rule : rules) {
    if (layer >= rule.first_layer && layer < rule.end_layer && plane < 8 && ((rule.planes >> plane) & 1U) != 0) {
      return rule.mode;
    }
  }
  return Mode::off;
}

Mode Recipe::mode_of_all() const noexcept {
  const Mode first = mode(0, 0);
  const auto same_at = [&](uint32_t layer) { return mode(layer, 0) == first && mode(layer, 1) == first; };
  bool same = same_at(0);
  // The mode is constant between two of these layers.
  for (const Rule& rule : rules)
    same = same && same_at(rule.first_layer) && same_at(std::min(rule.end_layer, kNoEnd - 1));
  return same ? first : Mode::standard;
}

bool Recipe::codes() const noexcept {
  return std::any_of(rules.begin(), rules.end(), [](const Rule& rule) { return rule.mode != Mode::off; });
}

bool Recipe::lossy() const noexcept {
  return std::any_of(rules.begin(), rules.end(), [](const Rule& rule) { return is_lossy(rule.mode); });
}

}  // namespace kvbm::codec
