// Runs `kvbm replay` in a child process, so that it can be killed in the middle.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "replay/store_replay.h"

namespace kvbm::replay {

// Writes and reads the line by which a replay reports to its parent. read_report() returns false for any other line.
void write_report(FILE* out, const StoreProgress& so_far);
bool read_report(const std::string& line, StoreProgress& so_far);

struct ChildEnd {
  bool killed = false;
  int exit_code = 0;
  StoreProgress last;      // the last report before it ended
  std::string output;      // its standard output
  std::string complaints;  // its standard error without the reports
};

// Runs this program with `arguments`. `watch` is called with every report; when it returns false the child is killed
// with SIGKILL. Blocks until the child has ended. A child never outlives its parent.
Result<ChildEnd> run_child(const std::vector<std::string>& arguments,
                           const std::function<bool(const StoreProgress&)>& watch);

}  // namespace kvbm::replay
