#include "terminal/temp_directory.h"

#include <cstdlib>

namespace kvbm::terminal {

std::string temp_directory() {
  for (const char* name : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "/tmp";
}

}  // namespace kvbm::terminal
