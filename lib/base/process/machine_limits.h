// Limits of the machine for this process: the installed memory and processors, less what control groups (cgroup v1 and
// v2: containers, Kubernetes, systemd units) allow. A group's limit binds all groups in it, so the smallest of the
// group's own and its ancestors' counts. Thread: any. Blocks: reads some files of /proc and /sys.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace kvbm {

struct MachineLimits {
  static constexpr uint64_t kNone = UINT64_MAX;
  uint64_t machine_memory = 0;      // bytes; 0: the system does not report it
  uint64_t machine_available = 0;   // bytes that are available without swapping
  uint64_t memory_limit = kNone;    // limit of the control groups, in bytes
  uint64_t memory_used = 0;         // with a limit: usage of the group that sets it, without its page cache
  std::string memory_file;          // file with the limit
  uint32_t machine_processors = 1;  // processors that this process may run on
  double processor_limit = 0;       // limit of the control groups, in processors; 0: none
  std::string processor_file;       // file with that limit

  // The smaller of machine and control groups; kNone if the system reports neither.
  [[nodiscard]] uint64_t memory() const noexcept;
  [[nodiscard]] uint64_t available() const noexcept;
  [[nodiscard]] uint32_t processors() const noexcept;  // at least 1; a fraction counts as one
};

// `root` is put before /proc and /sys: another tree instead of them, for tests. A file that cannot be read sets no
// limit.
MachineLimits read_machine_limits(const std::string& root = "");

// Returns ok, or a sentence that a host tier of `capacity_bytes` exceeds what the process may use, and what to do.
Status check_host_capacity(uint64_t capacity_bytes, const MachineLimits& limits);

}  // namespace kvbm
