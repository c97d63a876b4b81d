// Traces with the lengths of requests alone: Azure's LLM inference traces (TIMESTAMP,ContextTokens,GeneratedTokens) and
// BurstGPT (Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type; later with Session ID and Elapsed
// time). Which prompts begin alike is in neither, so of reuse they say nothing.
#pragma once

#include <string_view>

#include "trace/trace.h"

namespace kvbm::trace {

// The form whose header this line is; automatic where it is none.
[[nodiscard]] Form form_of_header(std::string_view line);
// Of Form::azure or Form::burstgpt; the first line is the header. Times count from the first request.
[[nodiscard]] Result<Parsed> parse_csv(std::string_view text, Form form, const ParseOptions& options);

}  // namespace kvbm::trace
