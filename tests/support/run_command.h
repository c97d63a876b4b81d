// Runs the kvbm command as a user does. For tests that have KVBM_COMMAND.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace kvbm::test {

struct Ran {
  int exit_code = -1;  // -1 after a signal too
  std::string text;
};

// `after` is shell code that handles the output; by default stdout and stderr are returned together. `before` sets the
// environment.
inline Ran run(const std::string& arguments, const char* after = " 2>&1", const std::string& before = "") {
  Ran ran;
  FILE* pipe = ::popen((before + " '" KVBM_COMMAND "' " + arguments + after).c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) ran.text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) ran.exit_code = WEXITSTATUS(status);
  return ran;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace kvbm::test
