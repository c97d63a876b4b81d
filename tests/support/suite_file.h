// Which file a test belongs to, and so which suite (main.cc). GoogleTest says where a test was written, which is
// another file than its own where several suites run the same tests on worlds of their own.
#pragma once

#include <string_view>

namespace kvbm::test {

// Assigns the tests `name` ("Tcp/TransportContract", as GoogleTest names them) to this file.
bool belongs_to(std::string_view name, std::string_view file);
// Returns the file that the tests `name` belong to, which were written in file `written`.
std::string_view suite_file(std::string_view name, std::string_view written);

}  // namespace kvbm::test
