// Places of kvbm's own shared libraries that are loaded when needed (libkvbm_ucx.so and the stores), in search order. A
// place of 1 and 2 is a file, or a directory that holds it:
//   1. the option, and then nowhere else
//   2. a variable of the environment
//   3. beside what this code is in (libkvbm.so or the command), in its kvbm/ folder, and where an install tree has it
//   4. ${libdir}/kvbm of the installation that was configured
#pragma once

#include <string>
#include <vector>

namespace kvbm {

bool is_regular_file(const std::string& path);
bool is_directory(const std::string& path);
// The value of a variable, "" if it is not set or if the process has more rights than its caller.
std::string module_variable(const char* variable);
// Returns the path for dlopen(): the system's folders would be searched for a name without a slash.
std::string module_path(const std::string& path);

// Returns the places where `file` is searched, in order.
std::vector<std::string> module_places(const std::string& file, const std::string& option, const char* variable);

}  // namespace kvbm
