// Traces of LLM requests as JSON: one object a line, or one array of objects, with `input_length` (tokens) and
// `hash_ids`, one id per block of the prompt; equal ids mean equal prefix up to and including that block. `timestamp`
// and `output_length` may be missing, and further fields are passed over. Published with Mooncake (FAST'25;
// github.com/kvcache-ai/Mooncake, FAST25-release/traces) in blocks of 512 tokens, milliseconds; by Alibaba
// (qwen-bailian-usagetraces-anon) in blocks of 16, seconds, with chat_id.
#pragma once

#include <string>
#include <string_view>

#include "trace/trace.h"

namespace kvbm::trace {

// Of Form::mooncake, Form::bailian or, where any line says chat_id and parent_chat_id, either.
// Without skip_bad the first bad line ends it: invalid_argument, "line 7: hash_ids is missing".
// Text whose first character is a bracket is one array, over any number of lines: it is read an object at a time, each
// as bounded as a line, and messages say "request 7". An array that is cut off, or has text after its end, is bad
// there. Any bytes are safe to give. Blank lines are passed over; a last line needs no line end. The block size is what
// the options say, and a line that does not fit it is bad; or else the one that fits every line: 512 (16 in Bailian's
// form) where it does, or the only power of two that does. invalid_argument where none or several do.
[[nodiscard]] Result<Parsed> parse_json_lines(std::string_view text, const ParseOptions& options);
// One line a request, in the published spelling, so that what is written parses to the same trace if its block size is
// given.
[[nodiscard]] std::string to_mooncake(const Trace& trace);

}  // namespace kvbm::trace
