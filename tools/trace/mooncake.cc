#include "trace/mooncake.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "trace/array.h"
#include "trace/block_size.h"

namespace kvbm::trace {
namespace {

using nlohmann::json;

// Reads a whole number in [0, limit]; on failure puts the error into `what`.
bool read_number(const json& object, const char* field, bool needed, uint64_t limit, uint64_t& out, std::string& what) {
  const auto it = object.find(field);
  if (it == object.end() || it->is_null()) {
    out = 0;
    if (needed) what = std::string(field) + " is missing";
    return !needed;
  }
  const bool whole_float = it->is_number_float() && it->get<double>() == std::floor(it->get<double>());
  if (!it->is_number_unsigned() && !(whole_float && it->get<double>() >= 0)) {
    what = std::string(field) + " must be a whole number, 0 or more";
    return false;
  }
  if (it->get<double>() > static_cast<double>(limit)) {
    what = std::string(field) + " is above " + std::to_string(limit);
    return false;
  }
  out = it->is_number_unsigned() ? it->get<uint64_t>() : static_cast<uint64_t>(it->get<double>());
  return true;
}

// Reads a time in milliseconds, or in seconds if `scale` is 1000. A request without a time gets that of the request
// before it.
bool read_time(const json& object, double scale, const ParseLimits& limits, uint64_t before, uint64_t& out,
               std::string& what) {
  const auto it = object.find("timestamp");
  out = before;
  if (it == object.end() || it->is_null()) return true;
  if (!it->is_number() || it->get<double>() < 0) {
    what = "timestamp must be a number, 0 or more";
    return false;
  }
  const double time = it->get<double>() * scale;
  if (!(time <= static_cast<double>(limits.timestamp_ms))) {
    what = "timestamp is above " + std::to_string(limits.timestamp_ms) + " ms";
    return false;
  }
  out = static_cast<uint64_t>(std::llround(time));
  return true;
}

bool read_ids(const json& object, const ParseLimits& limits, Trace& trace, std::string& what) {
  const auto it = object.find("hash_ids");
  if (it == object.end() || !it->is_array()) {
    what = it == object.end() ? "hash_ids is missing: a length alone does not say which prompts begin alike"
                              : "hash_ids must be an array";
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

bool is_bailian(const json& object) { return object.contains("chat_id") && object.contains("parent_chat_id"); }

class Lines {
 public:
  explicit Lines(const ParseOptions& options) : options_(options) { parsed_.form = options.form; }

  // These functions fail for bad input if bad lines are not to be skipped.
  Status read_lines(std::string_view text) {
    Status so_far;
    while (!text.empty() && so_far.ok()) {
      const size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
      parsed_.lines += 1;
      if (!blank(line)) so_far = read(line);
    }
    return so_far;
  }

  // `text` begins behind the array's bracket.
  Status read_array(std::string_view text) {
    parsed_.array = true;
    Elements elements(text);
    Status so_far;
    for (std::string_view element; so_far.ok() && elements.next(element);) {
      parsed_.lines += 1;
      so_far = read(element);
    }
    if (!so_far.ok() || (elements.closed() && blank(elements.rest()))) return so_far;
    parsed_.lines += 1;
    return bad(elements.closed() ? "more text after the end of the array"
                                 : "the array has no end: the trace is cut off");
  }

  Status find_block_size() {
    Trace& trace = parsed_.trace;
    trace.tokens_per_block = options_.tokens_per_block;
    if (options_.tokens_per_block != 0) return {};
    const Result<uint32_t> found = size_.find(parsed_.form == Form::bailian ? 16 : kTokensPerBlock, parsed_.unit());
    if (!found.ok()) return found.status();
    trace.tokens_per_block = found.value();
    return {};
  }

  Parsed& parsed() { return parsed_; }

 private:
  Status bad(const std::string& what) {
    parsed_.bad_lines += 1;
    if (!options_.skip_bad) {
      return {Code::invalid_argument, parsed_.array ? "bad trace request" : "bad trace line",
              std::string(parsed_.unit()) + " " + std::to_string(parsed_.lines) + ": " + what};
    }
    if (parsed_.bad.size() < options_.reported_bad) parsed_.bad.push_back({parsed_.lines, what});
    return {};
  }

  Status read(std::string_view text) {
    if (text.size() > options_.limits.line_bytes) {
      return bad("longer than " + std::to_string(options_.limits.line_bytes) + " bytes");
    }
    const json object = json::parse(text.begin(), text.end(), nullptr, false);
    if (object.is_discarded()) return bad("not valid JSON");
    if (!object.is_object()) return bad("not a JSON object");
    // The first request decides, because no file has both forms.
    if (parsed_.form == Form::automatic) parsed_.form = is_bailian(object) ? Form::bailian : Form::mooncake;
    std::string what;
    return read_request(object, what) ? Status() : bad(what);
  }

  bool read_request(const json& object, std::string& what) {
    Trace& trace = parsed_.trace;
    const ParseLimits& limits = options_.limits;
    Request request;
    uint64_t input = 0;
    uint64_t output = 0;
    request.first = trace.hash_ids.size();
    const uint64_t before = trace.requests.empty() ? 0 : trace.requests.back().timestamp_ms;
    if (!read_time(object, parsed_.form == Form::bailian ? 1000 : 1, limits, before, request.timestamp_ms, what) ||
        !read_number(object, "input_length", true, limits.tokens, input, what) ||
        !read_number(object, "output_length", false, limits.tokens, output, what) ||
        !read_ids(object, limits, trace, what)) {
      return false;
    }
    request.input_length = static_cast<uint32_t>(input);
    request.output_length = static_cast<uint32_t>(output);
    request.count = static_cast<uint32_t>(trace.hash_ids.size() - request.first);
    const uint32_t tokens = options_.tokens_per_block;
    if (tokens != 0 ? !fits(input, request.count, tokens) : !size_.add(parsed_.lines, input, request.count)) {
      what = std::to_string(input) + " tokens and " + std::to_string(request.count) +
             " hash_ids do not fit blocks of " + (tokens != 0 ? std::to_string(tokens) + " tokens" : "any size");
      trace.hash_ids.resize(request.first);
      return false;
    }
    trace.requests.push_back(request);
    return true;
  }

  const ParseOptions& options_;
  Parsed parsed_;
  BlockSize size_;
};

void append(std::string& out, const char* text, uint64_t number) {
  out += text;
  out += std::to_string(number);
}

}  // namespace

Result<Parsed> parse_json_lines(std::string_view text, const ParseOptions& options) {
  Lines lines(options);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool array = first != std::string_view::npos && text[first] == '[';
  const Status read = array ? lines.read_array(text.substr(first + 1)) : lines.read_lines(text);
  if (!read.ok()) return read;
  Parsed& parsed = lines.parsed();
  if (parsed.form == Form::automatic) parsed.form = Form::mooncake;
  if (const Status found = lines.find_block_size(); !found.ok()) return found;
  return Result<Parsed>(std::move(parsed));
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
