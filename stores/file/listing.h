// The names of objects beneath a directory, in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvbm_file {

// What an object's content is written to before it is renamed. Listings do not show it.
inline constexpr std::string_view kTemporary = ".tmp-";

// Where names are put, and until when.
struct ListTask {
  std::string_view prefix;
  std::string_view after;
  char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t deadline_ns = 0;  // of CLOCK_MONOTONIC
  uint64_t done = 0;         // out
  bool more = false;         // out
};

// Fills `task` from the directory `root`; 0 or an errno value, ETIMEDOUT after the deadline. Folders whose names are
// all before `after` are not read. Temporary files and empty folders that nothing has touched for an hour are removed on
// the way.
int list_objects(int root, ListTask& task);

uint64_t monotonic_ns();

}  // namespace kvbm_file
