// JSON for standard output. Names of files and of nodes may hold bytes that are not UTF-8, and these become U+FFFD;
// nlohmann's own dump would throw.
#pragma once

#include <string>

namespace kvbm::terminal {

// Prints with `indent` spaces per level; below zero on one line.
template <class Json>
std::string json_text(const Json& value, int indent = 2) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kvbm::terminal
