// Traces with the lengths of requests alone: Azure's LLM inference traces (TIMESTAMP,ContextTokens,GeneratedTokens)
// and BurstGPT (Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type; later with Session ID and
// Elapsed time). Neither shows which prompts have a common beginning, so they contain nothing about reuse.
#pragma once

#include <string_view>

#include "trace/trace.h"

namespace kvbm::trace {

// Returns the form with this header line; automatic if there is none.
[[nodiscard]] Form form_of_header(std::string_view line);
// Parses Form::azure or Form::burstgpt; the first line is the header. Times count from the first request.
[[nodiscard]] Result<Parsed> parse_csv(std::string_view text, Form form, const ParseOptions& options);

}  // namespace kvbm::trace
