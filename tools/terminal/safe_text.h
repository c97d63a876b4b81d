// Text that came from outside, made fit for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvbm::terminal {

// Other than printable ASCII becomes '?' (no escape sequence, no new line, no text that runs backwards), and more than
// `most` bytes are cut, with ... for an end.
std::string safe_text(std::string_view text, size_t most);

}  // namespace kvbm::terminal
