// Traces of LLM requests as JSON: one object per line, or one array of objects. Objects have `input_length` (tokens)
// and `hash_ids`, one id per block of the prompt; equal ids mean equal prefix up to and including that block.
// `timestamp` and `output_length` may be missing, and further fields are ignored.
//
// Published with Mooncake (FAST'25; github.com/kvcache-ai/Mooncake, FAST25-release/traces) in blocks of 512 tokens,
// milliseconds; by Alibaba (qwen-bailian-usagetraces-anon) in blocks of 16, seconds, with chat_id.
#pragma once

#include <string>
#include <string_view>

#include "trace/trace.h"

namespace kvbm::trace {

// Parses Form::mooncake, Form::bailian or, if any line has chat_id and parent_chat_id, either. Without skip_bad the
// first bad line ends it: invalid_argument, "line 7: hash_ids is missing".
//
// Text with a bracket as its first character is one array, over any number of lines. It is read an object at a time,
// with the limits of a line, and messages say "request 7". An array that is cut off, or has text after its end, is
// bad there. Any bytes are safe. Blank lines are skipped; a last line needs no line end.
//
// The block size is that of the options, and a line that does not fit it is bad. Without it the size must fit every
// line: 512 (16 in Bailian's form) if it does, or the only power of two that does. invalid_argument if none or
// several do.
[[nodiscard]] Result<Parsed> parse_json_lines(std::string_view text, const ParseOptions& options);
// Returns one line per request, in the published spelling. The text parses to the same trace if its block size is
// given.
[[nodiscard]] std::string to_mooncake(const Trace& trace);

}  // namespace kvbm::trace
