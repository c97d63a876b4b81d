#include "values.h"

#include <optional>
#include <vector>

namespace conformance {
namespace {

// "$name", "$name[i]" or "$name[i:j]", taken apart.
struct Reference {
  std::string name;
  bool indexed = false, sliced = false;
  std::size_t first = 0, last = 0;
};

std::optional<Reference> parse_reference(const std::string& text) {
  if (text.size() < 2 || text[0] != '$' || text[1] == '{') return std::nullopt;
  Reference out;
  const std::size_t bracket = text.find('[');
  out.name = text.substr(1, bracket == std::string::npos ? std::string::npos : bracket - 1);
  if (bracket == std::string::npos) return out;
  if (text.back() != ']') throw Failure("a reference without its end: " + text);
  const std::string inside = text.substr(bracket + 1, text.size() - bracket - 2);
  const std::size_t colon = inside.find(':');
  out.indexed = true;
  out.sliced = colon != std::string::npos;
  out.first = std::stoul(inside.substr(0, colon));
  if (out.sliced) out.last = std::stoul(inside.substr(colon + 1));
  return out;
}

const Json& variable(const std::string& name, const Variables& variables) {
  const auto found = variables.find(name);
  if (found == variables.end()) throw Failure("no variable " + name);
  return found->second;
}

Json value_of(const Reference& reference, const Variables& variables) {
  const Json& value = variable(reference.name, variables);
  if (!reference.indexed) return value;
  if (!reference.sliced) return value.at(reference.first);
  if (reference.first > reference.last || reference.last > value.size())
    throw Failure("no such part of " + reference.name);
  Json out = Json::array();
  for (std::size_t i = reference.first; i < reference.last; ++i) out.push_back(value.at(i));
  return out;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

Json resolve_text(const std::string& text, const Variables& variables, const Json& constants) {
  if (const auto reference = parse_reference(text)) return value_of(*reference, variables);
  if (text.rfind("KVBM_", 0) == 0) {
    if (!constants.contains(text)) throw Failure("no constant " + text);
    return constants.at(text);
  }
  std::string out;
  std::size_t at = 0;
  for (std::size_t begin; (begin = text.find("${", at)) != std::string::npos;) {
    const std::size_t end = text.find('}', begin);
    if (end == std::string::npos) throw Failure("a variable without its end: " + text);
    out += text.substr(at, begin - at) + text_of(variable(text.substr(begin + 2, end - begin - 2), variables));
    at = end + 1;
  }
  return out + text.substr(at);
}

bool is_matcher(const Json& expected) {
  for (const char* name : {"min", "max", "length", "contains", "not", "any_order"}) {
    if (expected.contains(name)) return true;
  }
  return false;
}

bool matches(const Json& expected, const Json& result) { return difference(expected, result, "").empty(); }

bool contains(const Json& result, const Json& expected) {
  if (result.is_string()) return expected.is_string() && result.get<std::string>().find(expected) != std::string::npos;
  for (const Json& element : result) {
    if (result.is_array() && matches(expected, element)) return true;
  }
  return false;
}

bool in_any_order(const Json& expected, const Json& result) {
  if (!result.is_array() || result.size() != expected.size()) return false;
  std::vector<bool> taken(result.size());
  for (const Json& wanted : expected) {
    std::size_t i = 0;
    while (i < result.size() && (taken[i] || !matches(wanted, result[i]))) ++i;
    if (i == result.size()) return false;
    taken[i] = true;
  }
  return true;
}

std::string matcher_difference(const Json& expected, const Json& result, const std::string& place) {
  for (const auto& [name, wanted] : expected.items()) {
    bool good = false;
    if (name == "min")
      good = result.is_number() && result >= wanted;
    else if (name == "max")
      good = result.is_number() && result <= wanted;
    else if (name == "length")
      good = (result.is_array() && result.size() == wanted) ||
             (result.is_string() && result.get<std::string>().size() == wanted);
    else if (name == "contains")
      good = contains(result, wanted);
    else if (name == "not")
      good = !matches(wanted, result);
    else if (name == "any_order")
      good = in_any_order(wanted, result);
    else
      throw Failure("no matcher " + name);
    if (!good) return place + ": " + result.dump() + " is not " + name + " " + wanted.dump();
  }
  return "";
}

}  // namespace

Json resolve(const Json& value, const Variables& variables, const Json& constants) {
  if (value.is_string()) return resolve_text(value, variables, constants);
  if (value.is_object()) {
    Json out = Json::object();
    for (const auto& [name, member] : value.items()) out[name] = resolve(member, variables, constants);
    return out;
  }
  if (!value.is_array()) return value;
  Json out = Json::array();
  for (const Json& element : value) {
    const auto reference = element.is_string() ? parse_reference(element) : std::nullopt;
    if (reference && reference->sliced) {
      for (const Json& one : value_of(*reference, variables)) out.push_back(one);
    } else {
      out.push_back(resolve(element, variables, constants));
    }
  }
  return out;
}

std::string difference(const Json& expected, const Json& result, const std::string& place) {
  if (expected.is_object() && is_matcher(expected)) return matcher_difference(expected, result, place);
  if (expected.is_object() && result.is_object()) {
    for (const auto& [name, wanted] : expected.items()) {
      if (!result.contains(name)) throw Failure(place + " has no " + name);
      const std::string wrong = difference(wanted, result.at(name), place + "." + name);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }
  if (expected.is_array() && result.is_array() && expected.size() == result.size()) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::string wrong = difference(expected[i], result[i], place + "[" + std::to_string(i) + "]");
      if (!wrong.empty()) return wrong;
    }
    return "";
  }
  return expected == result ? "" : place + ": " + result.dump() + " is not " + expected.dump();
}

uint8_t pattern_byte(uint32_t seed, uint64_t index) {
  uint32_t x = seed * 1000003u + static_cast<uint32_t>(index);
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return static_cast<uint8_t>(x);
}

void pattern_fill(uint8_t* out, uint64_t bytes, uint32_t seed) {
  for (uint64_t i = 0; i < bytes; ++i) out[i] = pattern_byte(seed, i);
}

uint64_t pattern_differs(const uint8_t* data, uint64_t bytes, uint32_t seed) {
  uint64_t i = 0;
  while (i < bytes && data[i] == pattern_byte(seed, i)) ++i;
  return i;
}

std::string to_hex(const uint8_t* data, std::size_t n) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < n; ++i) {
    out += digits[data[i] >> 4];
    out += digits[data[i] & 15];
  }
  return out;
}

std::string from_hex(const std::string& hex) {
  std::string out;
  if (hex.size() % 2 != 0) throw Failure("not hex: " + hex);
  for (std::size_t i = 0; i < hex.size(); i += 2) out += static_cast<char>(std::stoul(hex.substr(i, 2), nullptr, 16));
  return out;
}

}  // namespace conformance
