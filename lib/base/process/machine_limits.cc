#include "base/process/machine_limits.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

namespace kvbm {

namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the number in a file. "max", -1 and a missing file set no limit.
std::optional<uint64_t> number_in(const std::string& path) {
  const std::string text = first_line(path);
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  return std::strtoull(text.c_str(), nullptr, 10);
}

// The number after `name` in a file of lines "name number", or "name: number kB".
uint64_t number_of(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.size() <= name.size() || !line.starts_with(name) || (line[name.size()] != ':' && line[name.size()] != ' '))
      continue;
    const uint64_t number = std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
    return line.ends_with(" kB") ? number * 1024 : number;
  }
  return 0;
}

bool has_word(const std::string& list, std::string_view word) {
  std::istringstream words(list);
  for (std::string one; std::getline(words, one, ',');) {
    if (one == word) return true;
  }
  return false;
}

// A tree of groups as mounted here.
struct Mount {
  std::string root;  // the group shown at the mount point
  std::string point;
  std::string type;     // "cgroup" or "cgroup2"
  std::string options;  // options of a cgroup, with its controllers
};

// Spaces and similar characters are written in mountinfo as \ and three octal digits.
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 3 >= text.size()) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(std::strtoul(text.substr(i + 1, 3).c_str(), nullptr, 8));
    i += 3;
  }
  return out;
}

// "36 35 0:31 ROOT POINT rw,... shared:1 ... - TYPE SOURCE OPTIONS"
std::vector<Mount> mounts_of(const std::string& root) {
  std::vector<Mount> out;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::string skipped;
    Mount mount;
    std::istringstream(line.substr(0, dash)) >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    std::istringstream(line.substr(dash + 3)) >> mount.type >> skipped >> mount.options;
    if (mount.type != "cgroup" && mount.type != "cgroup2") continue;
    mount.root = unescaped(mount.root);
    mount.point = root + unescaped(mount.point);
    out.push_back(std::move(mount));
  }
  return out;
}

// Returns this process's group in a tree: of `controller` in v1, or of v2 if that is empty. Lines "4:memory:/a/b" and
// "0::/a/b".
std::optional<std::string> group_of(const std::string& root, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : has_word(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

// Returns the directories of this process's group and its ancestors, as far as they are mounted here. In a container
// the mount shows a part of the tree, at times with a name from outside; the mount point itself is always an ancestor.
std::vector<std::string> directories_of(const Mount& mount, std::string group) {
  if (mount.root != "/") {
    const bool beneath = group == mount.root || group.starts_with(mount.root + "/");
    group = beneath ? group.substr(mount.root.size()) : "";
  }
  if (group.find("..") != std::string::npos) group.clear();
  std::vector<std::string> out;
  while (!group.empty() && group != "/") {
    out.push_back(mount.point + group);
    group.resize(group.rfind('/'));
  }
  out.push_back(mount.point);
  return out;
}

// Calls visit(directory, is v2) for all groups that bind this process with `controller`.
template <class Visit>
void each_group(const std::string& root, const char* controller, Visit&& visit) {
  for (const Mount& mount : mounts_of(root)) {
    const bool second = mount.type == "cgroup2";
    if (!second && !has_word(mount.options, controller)) continue;
    const auto group = group_of(root, second ? "" : controller);
    if (!group.has_value()) continue;
    for (const std::string& directory : directories_of(mount, *group)) visit(directory, second);
  }
}

// Returns the usage without file pages that are easily reclaimed, as the tools of Kubernetes count it.
uint64_t used_in(const std::string& directory, bool second) {
  const uint64_t all = number_in(directory + (second ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  return all - std::min(all, number_of(directory + "/memory.stat", second ? "inactive_file" : "total_inactive_file"));
}

void read_memory(const std::string& root, MachineLimits& out) {
  out.machine_memory = number_of(root + "/proc/meminfo", "MemTotal");
  out.machine_available = number_of(root + "/proc/meminfo", "MemAvailable");
  each_group(root, "memory", [&](const std::string& directory, bool second) {
    // memory.high throttles a process that exceeds it until it all but stands still.
    for (const char* name : {second ? "/memory.max" : "/memory.limit_in_bytes", "/memory.high"}) {
      const auto limit = number_in(directory + name);
      // v1 expresses "no limit" as a number larger than any machine.
      if (!limit.has_value() || *limit >= out.memory_limit || (out.machine_memory != 0 && *limit >= out.machine_memory))
        continue;
      out.memory_limit = *limit;
      out.memory_used = used_in(directory, second);
      out.memory_file = directory + name;
    }
  });
}

void read_processors(const std::string& root, MachineLimits& out) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  const int here = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 0;
  out.machine_processors = here > 0 ? static_cast<uint32_t>(here) : std::max(1U, std::thread::hardware_concurrency());
  each_group(root, "cpu", [&](const std::string& directory, bool second) {
    std::string name = second ? "/cpu.max" : "/cpu.cfs_quota_us";
    std::istringstream text(first_line(directory + name));
    double quota = 0;
    double period = 0;
    if (!(text >> quota) || quota <= 0) return;  // "max", or -1
    if (second) {
      text >> period;
    } else {
      period = static_cast<double>(number_in(directory + "/cpu.cfs_period_us").value_or(0));
    }
    if (period <= 0 || (out.processor_limit != 0 && quota / period >= out.processor_limit)) return;
    out.processor_limit = quota / period;
    out.processor_file = directory + name;
  });
}

// Formats whole MiB if there are some, for a sentence.
std::string amount(uint64_t bytes) {
  constexpr uint64_t kMiB = 1 << 20;
  return bytes >= kMiB ? std::to_string(bytes / kMiB) + " MiB" : std::to_string(bytes) + " bytes";
}

}  // namespace

uint64_t MachineLimits::memory() const noexcept {
  return std::min(memory_limit, machine_memory == 0 ? kNone : machine_memory);
}

uint64_t MachineLimits::available() const noexcept {
  const uint64_t left = memory_limit == kNone ? kNone : memory_limit - std::min(memory_limit, memory_used);
  return std::min(left, machine_available == 0 ? kNone : machine_available);
}

uint32_t MachineLimits::processors() const noexcept {
  if (processor_limit <= 0) return machine_processors;
  return std::clamp(static_cast<uint32_t>(std::ceil(std::min(processor_limit, 65536.0))), 1U, machine_processors);
}

MachineLimits read_machine_limits(const std::string& root) {
  MachineLimits out;
  read_memory(root, out);
  read_processors(root, out);
  return out;
}

Status check_host_capacity(uint64_t capacity_bytes, const MachineLimits& limits) {
  if (capacity_bytes <= limits.memory()) return {};
  const bool group = limits.memory_limit != MachineLimits::kNone;
  const std::string whose = group ? "the memory limit of this process's control group, " + amount(limits.memory_limit) +
                                        " (" + limits.memory_file + ")"
                                  : "the memory of this machine, " + amount(limits.machine_memory);
  return {Code::no_memory, "host.capacity is more than there is",
          amount(capacity_bytes) + " exceed " + whose +
              ", so the process is killed when it has filled them: lower host.capacity below that" +
              (group ? ", or raise the limit of the container" : "")};
}

}  // namespace kvbm
