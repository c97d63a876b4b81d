#include "terminal/safe_text.h"

namespace kvbm::terminal {

std::string safe_text(std::string_view text, size_t most) {
  std::string out(text.substr(0, most));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > most && most > 3) out.replace(most - 3, 3, "...");
  return out;
}

}  // namespace kvbm::terminal
