// Makes external text safe for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvbm::terminal {

// Replaces everything but printable ASCII by '?' (no escape sequence, no new line, no text that runs backwards). Cuts
// text beyond `most` bytes, with ... at the end.
std::string safe_text(std::string_view text, size_t most);

}  // namespace kvbm::terminal
