// Traces of LLM requests in the Mooncake format: one JSON object a line with `timestamp` (ms),
// `input_length` and `output_length` (tokens) and `hash_ids`, one id per 512-token block of the
// prompt; equal ids mean equal prefix up to and including that block. Published with the FAST'25
// paper (github.com/kvcache-ai/Mooncake, FAST25-release/traces).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvbm::trace {

inline constexpr uint32_t kTokensPerBlock = 512;

struct Request {
  uint64_t timestamp_ms = 0;
  uint32_t input_length = 0;   // tokens
  uint32_t output_length = 0;  // tokens
  uint64_t first = 0;          // where its ids begin in Trace::hash_ids
  uint32_t count = 0;          // how many
};

struct Trace {
  std::vector<Request> requests;
  std::vector<uint64_t> hash_ids;

  [[nodiscard]] std::span<const uint64_t> blocks(const Request& request) const noexcept {
    return std::span(hash_ids).subspan(request.first, request.count);
  }
};

struct BadLine {
  uint64_t line = 0;  // from 1
  std::string what;
};

// Far above any real prompt (the largest published line is below 2 KiB and 256 blocks), and low
// enough that a hostile line costs little memory.
struct ParseLimits {
  size_t line_bytes = size_t{1} << 20;
  uint32_t hash_ids = 65536;        // a line: 32 Mi tokens
  uint32_t tokens = uint32_t{1} << 30;  // input_length and output_length
  uint64_t timestamp_ms = uint64_t{1} << 53;
  size_t blocks = size_t{1} << 30;  // in the whole trace
};

struct ParseOptions {
  bool skip_bad = false;    // go on after a bad line
  size_t reported_bad = 16;  // bad lines kept in Parsed::bad; the count is of all
  ParseLimits limits;
};

struct Parsed {
  Trace trace;
  uint64_t lines = 0;      // lines read, blank ones included
  uint64_t bad_lines = 0;
  std::vector<BadLine> bad;
};

// Without skip_bad the first bad line ends it: invalid_argument, "line 7: hash_ids is missing".
// Any bytes are safe to give. Blank lines are passed over; a last line needs no line end.
[[nodiscard]] Result<Parsed> parse_mooncake(std::string_view text, const ParseOptions& options);
// The same from a file; io_error when it cannot be read.
[[nodiscard]] Result<Parsed> read_mooncake(const std::string& path, const ParseOptions& options);
// One line a request, in the published spelling, so that what is written parses to the same trace.
[[nodiscard]] std::string to_mooncake(const Trace& trace);

}  // namespace kvbm::trace
