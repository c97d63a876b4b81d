// Events and what they add up to, as a person reads them and as lines of JSON.
#pragma once

#include <cstddef>
#include <string>

#include "watch/tally.h"

namespace kvbm::watch {

// Lines, each with its end. `lines`: of the screen; the list of events becomes shorter to fit; 0: any number.
std::string render_text(const Frame& frame, const ReaderOptions& options, size_t lines);
// A line for each event, and for what happened to the stream; each with its end.
std::string render_events(const Message& message, bool with_tokens);
// The closing line of JSON, with its end.
std::string render_summary(const Frame& frame);

}  // namespace kvbm::watch
