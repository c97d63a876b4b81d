// Returns the directory for temporary files: TMPDIR and similar variables, as in std::filesystem, else /tmp. If the
// variable names no directory, its value is returned, so that an error of the caller shows that name.
#pragma once

#include <string>

namespace kvbm::terminal {

std::string temp_directory();

}  // namespace kvbm::terminal
