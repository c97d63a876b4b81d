#include "terminal/quantity.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace kvbm::terminal {

namespace {

constexpr double kMaxExact = 18446744073709551616.0;  // 2^64

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string quoted(std::string_view text) {
  std::string out(1, '`');
  out.append(text);
  out.push_back('`');
  return out;
}

struct Parts {
  std::string number;
  std::string unit;
};

Parts split(std::string_view text) {
  text = trimmed(text);
  size_t end = 0;
  while (end < text.size() && ((text[end] >= '0' && text[end] <= '9') || text[end] == '.')) ++end;
  return {std::string(text.substr(0, end)), std::string(trimmed(text.substr(end)))};
}

// Whole numbers keep all 64 bits; only a decimal fraction goes through double.
Result<uint64_t> scaled(const Parts& parts, uint64_t factor, std::string_view text, bool whole) {
  const Status bad(Code::invalid_argument, "not a number", quoted(text));
  const Status large(Code::invalid_argument, "too large for 64 bits", quoted(text));
  if (parts.number.empty()) return bad;
  if (parts.number.find('.') == std::string::npos) {
    uint64_t value = 0;
    for (const char c : parts.number) {
      if (__builtin_mul_overflow(value, uint64_t{10}, &value)) return large;
      if (__builtin_add_overflow(value, static_cast<uint64_t>(c - '0'), &value)) return large;
    }
    if (__builtin_mul_overflow(value, factor, &value)) return large;
    return value;
  }
  char* end = nullptr;
  const double value = std::strtod(parts.number.c_str(), &end);
  if (end == parts.number.c_str() || *end != '\0') return bad;
  const double exact = value * static_cast<double>(factor);
  // 0.29 of 100 is a little less than 29 in a double. Half a block is no block.
  const double product = whole ? std::round(exact) : std::floor(exact);
  if (whole && std::fabs(exact - product) > 1e-9 * exact) {
    return Status(Code::invalid_argument, "not a whole number", quoted(text));
  }
  if (!(product < kMaxExact)) return large;
  return static_cast<uint64_t>(product);
}

std::string with_unit(double value, const char* unit) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s", value, unit);
  return text.data();
}

std::string in_steps(double bytes, double step, const std::array<const char*, 7>& units) {
  size_t unit = 0;
  while (bytes >= step && unit + 1 < units.size()) {
    bytes /= step;
    ++unit;
  }
  return with_unit(bytes, units[unit]);
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  static constexpr std::pair<std::string_view, uint64_t> kUnits[] = {{"", 1},
                                                                     {"B", 1},
                                                                     {"kB", 1000},
                                                                     {"KB", 1000},
                                                                     {"MB", 1000000},
                                                                     {"GB", 1000000000},
                                                                     {"TB", 1000000000000},
                                                                     {"PB", 1000000000000000},
                                                                     {"KiB", uint64_t{1} << 10},
                                                                     {"MiB", uint64_t{1} << 20},
                                                                     {"GiB", uint64_t{1} << 30},
                                                                     {"TiB", uint64_t{1} << 40},
                                                                     {"PiB", uint64_t{1} << 50}};
  const Parts parts = split(text);
  for (const auto& [unit, factor] : kUnits) {
    if (parts.unit == unit) return scaled(parts, factor, text, false);
  }
  return Status(Code::invalid_argument, "a size has a unit from kB to PB (powers of 1000) or from KiB to PiB (of 1024)",
                quoted(text));
}

Result<uint64_t> parse_count(std::string_view text) {
  static constexpr std::pair<std::string_view, uint64_t> kUnits[] = {
      {"", 1}, {"k", 1000}, {"K", 1000}, {"M", 1000000}, {"G", 1000000000}, {"T", 1000000000000}};
  const Parts parts = split(text);
  for (const auto& [unit, factor] : kUnits) {
    if (parts.unit == unit) return scaled(parts, factor, text, true);
  }
  return Status(Code::invalid_argument, "a count is a number with k, M or G (decimal) at most", quoted(text));
}

Result<std::vector<uint64_t>> parse_counts(std::string_view text) {
  std::vector<uint64_t> counts;
  for (;;) {
    const size_t comma = text.find(',');
    Result<uint64_t> count = parse_count(text.substr(0, comma));
    if (!count.ok()) return count.status();
    counts.push_back(count.value());
    if (comma == std::string_view::npos) return counts;
    text.remove_prefix(comma + 1);
  }
}

std::string format_size(double bytes) {
  if (bytes < 1000) return format_count(static_cast<uint64_t>(bytes)) + " B";
  return in_steps(bytes, 1000, {"B", "kB", "MB", "GB", "TB", "PB", "EB"}) + " (" + format_binary_size(bytes) + ")";
}

std::string format_binary_size(double bytes) {
  if (bytes < 1024) return format_count(static_cast<uint64_t>(bytes)) + " B";
  return in_steps(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"});
}

std::string format_capacity(uint64_t bytes) {
  return bytes == 0 ? "no limit" : format_binary_size(static_cast<double>(bytes));
}

std::string format_count(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string format_duration(double seconds) {
  std::array<char, 64> text{};
  const auto whole = static_cast<unsigned long long>(seconds < 0 ? 0 : seconds);
  if (seconds < 60) {
    std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  } else if (whole < 3600) {
    std::snprintf(text.data(), text.size(), "%llu min %02llu s", whole / 60, whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%llu h %02llu min", whole / 3600, whole % 3600 / 60);
  }
  return text.data();
}

}  // namespace kvbm::terminal
