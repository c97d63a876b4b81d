#include "trace/mooncake.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace kvbm::trace {
namespace {

using nlohmann::json;

// Reads a whole number in [0, limit]; on failure says what is wrong in `what`.
bool read_number(const json& object, const char* field, uint64_t limit, uint64_t& out, std::string& what) {
  const auto it = object.find(field);
  if (it == object.end()) {
    what = std::string(field) + " is missing";
    return false;
  }
  if (!it->is_number_unsigned()) {
    what = std::string(field) + " must be a whole number, 0 or more";
    return false;
  }
  out = it->get<uint64_t>();
  if (out > limit) {
    what = std::string(field) + " is above " + std::to_string(limit);
    return false;
  }
  return true;
}

bool read_ids(const json& object, const ParseLimits& limits, Trace& trace, std::string& what) {
  const auto it = object.find("hash_ids");
  if (it == object.end() || !it->is_array()) {
    what = it == object.end() ? "hash_ids is missing" : "hash_ids must be an array";
    return false;
  }
  if (it->size() > limits.hash_ids || trace.hash_ids.size() + it->size() > limits.blocks) {
    what = it->size() > limits.hash_ids ? "more than " + std::to_string(limits.hash_ids) + " hash_ids"
                                        : "the trace has more than " + std::to_string(limits.blocks) + " blocks";
    return false;
  }
  const size_t first = trace.hash_ids.size();
  for (const json& id : *it) {
    if (!id.is_number_unsigned()) {
      what = "hash_ids[" + std::to_string(trace.hash_ids.size() - first) + "] must be a whole number, 0 or more";
      trace.hash_ids.resize(first);
      return false;
    }
    trace.hash_ids.push_back(id.get<uint64_t>());
  }
  return true;
}

bool read_line(std::string_view line, const ParseLimits& limits, Trace& trace, std::string& what) {
  if (line.size() > limits.line_bytes) {
    what = "longer than " + std::to_string(limits.line_bytes) + " bytes";
    return false;
  }
  const json object = json::parse(line.begin(), line.end(), nullptr, false);
  if (object.is_discarded() || !object.is_object()) {
    what = object.is_discarded() ? "not valid JSON" : "not a JSON object";
    return false;
  }
  Request request;
  uint64_t input = 0;
  uint64_t output = 0;
  request.first = trace.hash_ids.size();
  if (!read_number(object, "timestamp", limits.timestamp_ms, request.timestamp_ms, what) ||
      !read_number(object, "input_length", limits.tokens, input, what) ||
      !read_number(object, "output_length", limits.tokens, output, what) ||
      !read_ids(object, limits, trace, what)) {
    return false;
  }
  request.input_length = static_cast<uint32_t>(input);
  request.output_length = static_cast<uint32_t>(output);
  request.count = static_cast<uint32_t>(trace.hash_ids.size() - request.first);
  trace.requests.push_back(request);
  return true;
}

void append(std::string& out, const char* text, uint64_t number) {
  out += text;
  out += std::to_string(number);
}

}  // namespace

Result<Parsed> parse_mooncake(std::string_view text, const ParseOptions& options) {
  Parsed parsed;
  std::string what;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    parsed.lines += 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (read_line(line, options.limits, parsed.trace, what)) continue;
    parsed.bad_lines += 1;
    if (!options.skip_bad) {
      return Status(Code::invalid_argument, "bad trace line", "line " + std::to_string(parsed.lines) + ": " + what);
    }
    if (parsed.bad.size() < options.reported_bad) parsed.bad.push_back({parsed.lines, what});
  }
  return parsed;
}

Result<Parsed> read_mooncake(const std::string& path, const ParseOptions& options) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return Status(Code::io_error, "cannot open the trace", path + ": " + std::strerror(errno));
  std::string text;
  std::string chunk(size_t{1} << 16, '\0');
  size_t n = 0;
  while ((n = std::fread(chunk.data(), 1, chunk.size(), file)) > 0) text.append(chunk.data(), n);
  const bool failed = std::ferror(file) != 0;
  const int error = errno;
  std::fclose(file);
  if (failed) return Status(Code::io_error, "cannot read the trace", path + ": " + std::strerror(error));
  for (const std::string_view magic : {"\x1f\x8b", "\x28\xb5\x2f\xfd", "BZh", "\xfd" "7zXZ"}) {
    if (text.rfind(magic, 0) == 0) return Status(Code::io_error, "the trace is compressed; unpack it first", path);
  }
  return parse_mooncake(text, options);
}

std::string to_mooncake(const Trace& trace) {
  std::string out;
  out.reserve(trace.hash_ids.size() * 9 + trace.requests.size() * 96);
  for (const Request& request : trace.requests) {
    append(out, "{\"timestamp\": ", request.timestamp_ms);
    append(out, ", \"input_length\": ", request.input_length);
    append(out, ", \"output_length\": ", request.output_length);
    const char* separator = ", \"hash_ids\": [";
    for (const uint64_t id : trace.blocks(request)) {
      append(out, separator, id);
      separator = ", ";
    }
    out += request.count == 0 ? ", \"hash_ids\": []}\n" : "]}\n";
  }
  return out;
}

}  // namespace kvbm::trace
