// Parses and formats quantities for people. An input size must have a unit, and a printed size shows both units,
// because GB (10^9) and GiB (2^30) differ by 7 % and tera by 10 %.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvbm::terminal {

// Parses "64GiB", "1.5 TB", "512MiB", "4096" (bytes). A bare K, M, G or T is refused, because it is ambiguous.
Result<uint64_t> parse_size(std::string_view text);
// Parses "100000", "100k", "3M", "1.5G": decimal multiples, for tokens and blocks; "1.5" is refused.
Result<uint64_t> parse_count(std::string_view text);
// Parses "1k,3k,10k".
Result<std::vector<uint64_t>> parse_counts(std::string_view text);

// Returns "32.77 GB (30.52 GiB)"; below 1000 bytes "512 B".
std::string format_size(double bytes);
// Returns "30.52 GiB".
std::string format_binary_size(double bytes);
// Returns "30.52 GiB"; "no limit" for 0.
std::string format_capacity(uint64_t bytes);
// Returns "100,000".
std::string format_count(uint64_t count);
// Returns "1.2 s", "3 min 04 s", "2 h 10 min".
std::string format_duration(double seconds);

}  // namespace kvbm::terminal
