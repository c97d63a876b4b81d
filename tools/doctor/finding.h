// Findings of `kvbm doctor`: each thing the library can use, whether it is here, and the consequence.
#pragma once

#include <string>
#include <vector>

#include "base/process/machine_limits.h"

namespace kvbm::doctor {

enum class State { ok, limited, absent };

struct Finding {
  std::string area;  // "cpu", "memory", "storage", "devices", "gpu", "same host"
  std::string name;
  State state = State::ok;
  std::string value;
  std::string advice;  // consequence and remedy; empty when all is well
};

using Findings = std::vector<Finding>;

const char* state_name(State state) noexcept;
void probe_cpu(const MachineLimits& limits, Findings& out);
void probe_memory(const MachineLimits& limits, Findings& out);
// Returns why io_uring is refused and the remedy, after `call` failed with `error`. `disabled`: the value of
// kernel.io_uring_disabled ("" if there is no such setting). `filtered`: whether a seccomp filter is in force on this
// process.
std::string ring_advice(const std::string& call, int error, const std::string& disabled, bool filtered);
// Opens an unlinked temporary file in `dir`, and a ring of io_uring. Leaves nothing behind.
void probe_storage(const std::string& dir, Findings& out);
// Loads UCX if it is installed. The process retains its own signal dispositions.
void probe_devices(Findings& out);
// Loads the CUDA driver (`library`, or libcuda.so.1 if that is empty) and opens each device for a moment, because
// attaching a cache would do that too. Loads cuFile's library like device.storage = auto.
void probe_gpu(const std::string& library, const std::string& cufile, Findings& out);
// Makes and seals 2 MiB of memory, and the directory for nodes' sockets.
void probe_same_host(Findings& out);

// Returns the first line of a file of /proc or /sys; "" when it cannot be read.
std::string first_line(const std::string& path);

}  // namespace kvbm::doctor
