// Renders events and their totals, as text and as lines of JSON.
#pragma once

#include <cstddef>
#include <string>

#include "watch/tally.h"

namespace kvbm::watch {

// Returns lines, each with its end. `lines`: of the screen; the list of events becomes shorter to fit; 0: any number.
std::string render_text(const Frame& frame, const ReaderOptions& options, size_t lines);
// Returns a line for each event, and for changes of the stream; each with its end.
std::string render_events(const Message& message, bool with_tokens);
// Returns the closing line of JSON, with its end.
std::string render_summary(const Frame& frame);

}  // namespace kvbm::watch
