#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "doctor/finding.h"
#include "terminal/quantity.h"

namespace kvbm::doctor {

namespace {

using terminal::format_size;

// Returns the number of a `Name:   12345 kB` line of /proc/meminfo, as bytes for kB and unchanged for counts.
uint64_t meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) != 0) continue;
    const uint64_t number = std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
    return line.find(" kB") == std::string::npos ? number : number * 1024;
  }
  return 0;
}

std::string cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) return line + " ";
  }
  return "";
}

size_t numa_nodes() {
  size_t nodes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    if (name.rfind("node", 0) == 0 && name.find_first_not_of("0123456789", 4) == std::string::npos) ++nodes;
  }
  return nodes;
}

// Locks as much as a small staging ring needs, because the limit alone does not tell (CAP_IPC_LOCK ignores it).
bool can_lock(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  const bool locked = ::mlock(memory, bytes) == 0;
  ::munmap(memory, bytes);
  return locked;
}

void probe_huge_pages(Findings& out) {
  const std::string mode = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const bool usable = mode.find("[always]") != std::string::npos || mode.find("[madvise]") != std::string::npos;
  out.push_back(
      {"memory", "transparent huge pages", usable ? State::ok : State::absent, mode.empty() ? "no" : mode,
       usable ? "" : "large arenas take more TLB misses; echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  const uint64_t free_pages = meminfo("HugePages_Free");
  out.push_back({"memory", "explicit huge pages", free_pages > 0 ? State::ok : State::absent,
                 std::to_string(free_pages) + " free of " + format_size(static_cast<double>(meminfo("Hugepagesize"))),
                 free_pages > 0 ? "" : "hugetlbfs arenas are not possible; set vm.nr_hugepages with sysctl"});
}

}  // namespace

const char* state_name(State state) noexcept {
  return state == State::ok ? "ok" : state == State::limited ? "limited" : "absent";
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void probe_cpu(const MachineLimits& limits, Findings& out) {
  const std::string flags = cpu_flags();
  for (const char* name : {"avx2", "bmi2", "sha_ni", "vaes", "avx512f", "avx512bw", "avx512vl"}) {
    std::string word(1, ' ');
    word.append(name).push_back(' ');
    const bool has = flags.find(word) != std::string::npos;
    out.push_back({"cpu", name, has ? State::ok : State::absent, has ? "yes" : "no",
                   has ? "" : "hashing and copying use a slower path; results are the same"});
  }
  out.push_back({"cpu", "processors", State::ok, std::to_string(limits.machine_processors), ""});
  if (limits.processor_limit > 0) {
    std::array<char, 32> share{};
    std::snprintf(share.data(), share.size(), "%.3g", limits.processor_limit);
    const bool less = limits.processor_limit < limits.machine_processors;
    out.push_back({"cpu", "control group", less ? State::limited : State::ok,
                   std::string(share.data()) + " processors (" + limits.processor_file + ")",
                   less ? "the threads of this process together get no more, and stand still for the rest of each "
                          "period; raise the limit of the container for more speed"
                        : ""});
  }
  const size_t nodes = numa_nodes();
  out.push_back({"cpu", "NUMA nodes", nodes > 0 ? State::ok : State::absent, std::to_string(nodes),
                 nodes > 0 ? "" : "the system does not report it; memory is treated as one node"});
}

void probe_memory(const MachineLimits& limits, Findings& out) {
  const auto size = [](uint64_t bytes) {
    return bytes == MachineLimits::kNone ? "unknown" : format_size(static_cast<double>(bytes));
  };
  out.push_back({"memory", "total", State::ok, size(limits.machine_memory), ""});
  if (limits.memory_limit != MachineLimits::kNone) {
    out.push_back({"memory", "control group", State::limited,
                   size(limits.memory_limit) + " (" + limits.memory_file + ")",
                   "a process that needs more is killed; keep host.capacity and what the engine needs below it "
                   "together, or raise the limit of the container"});
  }
  out.push_back({"memory", "available", State::ok, size(limits.available()), ""});
  probe_huge_pages(out);
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  constexpr size_t kStagingRing = size_t{64} << 20;
  const bool locks = can_lock(kStagingRing);
  const std::string value =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : format_size(static_cast<double>(limit.rlim_cur));
  out.push_back({"memory", "memlock", locks ? State::ok : State::limited,
                 value + (locks ? ", 64 MiB lock" : ", 64 MiB do not lock"),
                 locks ? "" : "io_uring buffers stay unregistered; raise `ulimit -l` or LimitMEMLOCK="});
}

}  // namespace kvbm::doctor
