// What of the machine this process may use: the memory and processors that there are, less what control groups (cgroup v1
// and v2: containers, Kubernetes, systemd units) allow. A group's limit binds all groups in it, so the least of the group's
// own and of its ancestors' counts. Thread: any. Blocks: for the reading of some files of /proc and /sys.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace kvbm {

struct MachineLimits {
  static constexpr uint64_t kNone = UINT64_MAX;
  uint64_t machine_memory = 0;     // bytes; 0: the system does not tell
  uint64_t machine_available = 0;  // bytes that can be had without swapping
  uint64_t memory_limit = kNone;   // of the control groups, bytes
  uint64_t memory_used = 0;        // where there is a limit: of the group whose limit it is, without its page cache
  std::string memory_file;         // that says the limit
  uint32_t machine_processors = 1;  // those that this process may run on
  double processor_limit = 0;      // of the control groups, in processors; 0: none
  std::string processor_file;      // that says it

  // What may be used of both; kNone where the system tells neither.
  [[nodiscard]] uint64_t memory() const noexcept;
  [[nodiscard]] uint64_t available() const noexcept;
  [[nodiscard]] uint32_t processors() const noexcept;  // at least 1; a part of one counts as one
};

// `root` comes before /proc and /sys: another tree in their place, for tests. What cannot be read sets no limit.
MachineLimits read_machine_limits(const std::string& root = "");

// Ok, or in one sentence that a host tier of `capacity_bytes` is more than the process may use, and what to do.
Status check_host_capacity(uint64_t capacity_bytes, const MachineLimits& limits);

}  // namespace kvbm
