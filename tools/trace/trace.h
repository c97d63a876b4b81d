// A trace of requests to a model, in any file format, and the options of its parsers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace kvbm::trace {

// Block size of Mooncake's traces, and of those that kvbm makes.
inline constexpr uint32_t kTokensPerBlock = 512;

struct Request {
  uint64_t timestamp_ms = 0;
  uint32_t input_length = 0;   // tokens
  uint32_t output_length = 0;  // tokens
  uint64_t first = 0;          // begin of its ids in Trace::hash_ids
  uint32_t count = 0;          // number of them
};

struct Trace {
  std::vector<Request> requests;
  std::vector<uint64_t> hash_ids;
  uint32_t tokens_per_block = kTokensPerBlock;
  // True: the trace has lengths of prompts, but no common beginnings, so it cannot be replayed.
  bool lengths_alone = false;

  [[nodiscard]] std::span<const uint64_t> blocks(const Request& request) const noexcept {
    return std::span(hash_ids).subspan(request.first, request.count);
  }
};

enum class Form {
  automatic,  // detected from their first line
  mooncake,   // JSON objects with hash_ids; timestamps in milliseconds
  bailian,    // like mooncake with chat_id and parent_chat_id (Alibaba's Qwen traces); seconds
  azure,      // CSV: TIMESTAMP,ContextTokens,GeneratedTokens
  burstgpt,   // CSV: Timestamp,...,Request tokens,Response tokens,...
};

struct BadLine {
  uint64_t line = 0;  // from 1; of an array, the request
  std::string what;
};

// Far above any real prompt (the largest published line is below 2 KiB and 256 blocks), and low enough that a hostile
// line costs little memory.
struct ParseLimits {
  size_t line_bytes = size_t{1} << 20;  // or of one request of an array
  uint32_t hash_ids = 65536;            // per line: 32 Mi tokens in blocks of 512
  uint32_t tokens = uint32_t{1} << 30;  // input_length and output_length
  uint64_t timestamp_ms = uint64_t{1} << 53;
  size_t blocks = size_t{1} << 30;          // in the whole trace
  size_t unpacked_bytes = size_t{4} << 30;  // of a compressed file
};

struct ParseOptions {
  bool skip_bad = false;     // continue after a bad line
  size_t reported_bad = 16;  // limit of Parsed::bad; the count is of all
  ParseLimits limits = {};
  Form form = Form::automatic;
  uint32_t tokens_per_block = 0;  // 0: detect
};

struct Parsed {
  Trace trace;
  Form form = Form::mooncake;
  bool array = false;  // true: one JSON array, in which requests are counted instead of lines
  uint64_t lines = 0;  // lines read, blank ones included
  uint64_t bad_lines = 0;
  std::vector<BadLine> bad;

  [[nodiscard]] const char* unit() const noexcept { return array ? "request" : "line"; }
};

}  // namespace kvbm::trace
