// Values in a scenario: substituted variables, expected results, patterns of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace conformance {

using Json = nlohmann::json;

// Thrown for an invalid scenario, or for a result that differs from the expected one.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Variables = std::map<std::string, Json>;

// Replaces variables and constants in a value, at every depth.
Json resolve(const Json& value, const Variables& variables, const Json& constants);
// Returns "" if `result` is as expected, else the difference and its place.
std::string difference(const Json& expected, const Json& result, const std::string& place);

uint8_t pattern_byte(uint32_t seed, uint64_t index);
void pattern_fill(uint8_t* out, uint64_t bytes, uint32_t seed);
// Returns the index of the first byte that differs from the pattern; `bytes` if none does.
uint64_t pattern_differs(const uint8_t* data, uint64_t bytes, uint32_t seed);

std::string to_hex(const uint8_t* data, std::size_t n);
std::string from_hex(const std::string& hex);

}  // namespace conformance
