// Lists the names of objects beneath a directory, in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvbm_file {

// Prefix of the file that an object's content is written to before the file is renamed. Listings leave such files
// out.
inline constexpr std::string_view kTemporary = ".tmp-";

// Parameters, buffer, deadline and result of a listing.
struct ListTask {
  std::string_view prefix;
  std::string_view after;
  char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t deadline_ns = 0;  // of CLOCK_MONOTONIC
  uint64_t done = 0;         // out
  bool more = false;         // out
};

// Fills `task` from the directory `root`. Returns 0 or an errno value, ETIMEDOUT after the deadline. Folders with all
// names before `after` are not read. Removes on its way temporary files and empty folders that nothing has touched
// for an hour.
int list_objects(int root, ListTask& task);

uint64_t monotonic_ns();

}  // namespace kvbm_file
