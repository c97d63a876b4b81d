// The directory for temporary files: TMPDIR and its like, as std::filesystem looks for them, else /tmp. Where the
// variable names nothing the answer is its value, and who uses it fails with its name.
#pragma once

#include <string>

namespace kvbm::terminal {

std::string temp_directory();

}  // namespace kvbm::terminal
