// Limits that control groups set on a machine, read from trees of files as containers and systemd units see them.
#include "base/process/machine_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "support/temp_dir.h"

namespace kvbm::machine_limits_test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class MachineLimitsTest : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path at = root_.path() + path;
    std::filesystem::create_directories(at.parent_path());
    std::ofstream(at) << text << "\n";
  }
  void machine(uint64_t total, uint64_t available) {
    put("/proc/meminfo", "MemTotal:       " + std::to_string(total / 1024) +
                             " kB\nMemFree:        1 kB\nMemAvailable:   " + std::to_string(available / 1024) + " kB");
  }
  // Makes groups of version 2 only, mounted with `root` at /sys/fs/cgroup.
  void second_version(const std::string& group, const std::string& root = "/") {
    put("/proc/self/cgroup", "0::" + group);
    put("/proc/self/mountinfo",
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 22 0:26 " +
            root + " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup rw,nsdelegate");
  }
  // Makes groups of version 1, with the processors' controllers in one tree, and an empty tree of version 2 beside it.
  void first_version(const std::string& group, const std::string& root = "/") {
    put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:" + group + "\n2:cpu,cpuacct:" + group + "\n0::/");
    put("/proc/self/mountinfo", "32 31 0:29 " + root +
                                    " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                                    "35 31 0:32 " +
                                    root +
                                    " /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
                                    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw");
  }
  [[nodiscard]] MachineLimits read() const { return read_machine_limits(root_.path()); }
  [[nodiscard]] std::string at(const std::string& path) const { return root_.path() + path; }

  test::TempDir root_;
};

TEST_F(MachineLimitsTest, a_machine_without_groups_has_its_own_memory) {
  machine(8192 * kMiB, 6000 * kMiB);
  const MachineLimits limits = read();
  EXPECT_EQ(limits.memory_limit, MachineLimits::kNone);
  EXPECT_EQ(limits.memory(), 8192 * kMiB);
  EXPECT_EQ(limits.available(), 6000 * kMiB);
  EXPECT_EQ(limits.processor_limit, 0);
  EXPECT_EQ(limits.processors(), limits.machine_processors);
}

TEST_F(MachineLimitsTest, nothing_is_known_where_nothing_can_be_read) {
  const MachineLimits limits = read();
  EXPECT_EQ(limits.memory(), MachineLimits::kNone);
  EXPECT_EQ(limits.available(), MachineLimits::kNone);
  EXPECT_GE(limits.processors(), 1U);
  EXPECT_TRUE(check_host_capacity(uint64_t{1} << 50, limits).ok());
}

TEST_F(MachineLimitsTest, the_second_version_tells_limit_and_use) {
  machine(8192 * kMiB, 6000 * kMiB);
  second_version("/a");
  put("/sys/fs/cgroup/a/memory.max", std::to_string(160 * kMiB));
  put("/sys/fs/cgroup/a/memory.current", std::to_string(100 * kMiB));
  put("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file " + std::to_string(40 * kMiB) + "\nactive_file 7");
  put("/sys/fs/cgroup/a/cpu.max", "150000 100000");
  const MachineLimits limits = read();
  EXPECT_EQ(limits.memory(), 160 * kMiB);
  EXPECT_EQ(limits.memory_file, at("/sys/fs/cgroup/a/memory.max"));
  EXPECT_EQ(limits.available(), 100 * kMiB);
  EXPECT_EQ(limits.processor_limit, 1.5);
  EXPECT_EQ(limits.processors(), std::min(2U, limits.machine_processors));
}

TEST_F(MachineLimitsTest, the_first_version_tells_limit_and_use) {
  machine(8192 * kMiB, 6000 * kMiB);
  first_version("/docker/x");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  put("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "9223372036854771712");
  put("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", std::to_string(160 * kMiB));
  put("/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", std::to_string(100 * kMiB));
  put("/sys/fs/cgroup/memory/docker/x/memory.stat",
      "inactive_file 1\ntotal_inactive_file " + std::to_string(30 * kMiB));
  put("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "50000");
  put("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000");
  put("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "-1");
  put("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "100000");
  const MachineLimits limits = read();
  EXPECT_EQ(limits.memory(), 160 * kMiB);
  EXPECT_EQ(limits.memory_file, at("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes"));
  EXPECT_EQ(limits.available(), 90 * kMiB);
  EXPECT_EQ(limits.processor_limit, 0.5);
  EXPECT_EQ(limits.processors(), 1U);
}

TEST_F(MachineLimitsTest, no_limit_is_none_in_either_version) {
  machine(8192 * kMiB, 6000 * kMiB);
  second_version("/a");
  put("/sys/fs/cgroup/a/memory.max", "max");
  put("/sys/fs/cgroup/a/memory.high", "max");
  put("/sys/fs/cgroup/a/cpu.max", "max 100000");
  EXPECT_EQ(read().memory_limit, MachineLimits::kNone);
  EXPECT_EQ(read().processor_limit, 0);
  first_version("/");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(read().memory_limit, MachineLimits::kNone);
  EXPECT_EQ(read().processor_limit, 0);
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(8193 * kMiB));  // more than there is
  EXPECT_EQ(read().memory_limit, MachineLimits::kNone);
}

// The least limit may be that of any ancestor: of the pod, of the slice.
TEST_F(MachineLimitsTest, the_least_limit_of_all_ancestors_counts) {
  machine(8192 * kMiB, 6000 * kMiB);
  const std::string groups[] = {"", "/kubepods", "/kubepods/pod", "/kubepods/pod/box"};
  for (const std::string& least : groups) {
    for (const std::string& group : groups) {
      put("/sys/fs/cgroup" + group + "/memory.max", std::to_string((group == least ? 100 : 300) * kMiB));
      put("/sys/fs/cgroup" + group + "/memory.current", std::to_string((group == least ? 30 : 1) * kMiB));
      put("/sys/fs/cgroup" + group + "/cpu.max", group == least ? "20000 100000" : "900000 100000");
    }
    second_version(groups[3]);
    const MachineLimits limits = read();
    EXPECT_EQ(limits.memory(), 100 * kMiB) << least;
    EXPECT_EQ(limits.available(), 70 * kMiB) << least;
    EXPECT_EQ(limits.memory_file, at("/sys/fs/cgroup" + least + "/memory.max"));
    EXPECT_EQ(limits.processor_limit, 0.2) << least;
  }
}

TEST_F(MachineLimitsTest, what_throttles_counts_where_it_is_less_than_what_kills) {
  machine(8192 * kMiB, 6000 * kMiB);
  second_version("/a");
  put("/sys/fs/cgroup/a/memory.max", std::to_string(200 * kMiB));
  put("/sys/fs/cgroup/a/memory.high", std::to_string(150 * kMiB));
  EXPECT_EQ(read().memory(), 150 * kMiB);
  EXPECT_EQ(read().memory_file, at("/sys/fs/cgroup/a/memory.high"));
}

// Without a cgroup namespace a container reads the machine's name of its group, but only its own subtree is mounted.
TEST_F(MachineLimitsTest, a_container_that_sees_a_part_of_the_tree_finds_its_own) {
  machine(8192 * kMiB, 6000 * kMiB);
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(120 * kMiB));
  put("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", std::to_string(80 * kMiB));
  first_version("/docker/0123", "/docker/0123");
  EXPECT_EQ(read().memory(), 120 * kMiB);
  first_version("/docker/0123/inner", "/docker/0123");
  EXPECT_EQ(read().memory(), 80 * kMiB);
  first_version("/docker/01234", "/docker/0123");  // another one's, with a longer name
  EXPECT_EQ(read().memory(), 120 * kMiB);
  first_version("/../../elsewhere", "/");
  EXPECT_EQ(read().memory(), 120 * kMiB);
  first_version("/not/there/any/more", "/");
  EXPECT_EQ(read().memory(), 120 * kMiB);
}

TEST_F(MachineLimitsTest, a_mount_point_with_a_space_is_read) {
  machine(8192 * kMiB, 6000 * kMiB);
  put("/proc/self/cgroup", "0::/");
  put("/proc/self/mountinfo", "30 22 0:26 / /sys/my\\040groups rw - cgroup2 cgroup rw");
  put("/sys/my groups/memory.max", std::to_string(64 * kMiB));
  EXPECT_EQ(read().memory(), 64 * kMiB);
}

TEST_F(MachineLimitsTest, a_host_tier_that_exceeds_the_limit_is_told_in_one_sentence_with_the_remedy) {
  machine(8192 * kMiB, 6000 * kMiB);
  EXPECT_TRUE(check_host_capacity(8192 * kMiB, read()).ok());
  EXPECT_NE(check_host_capacity(8193 * kMiB, read()).message().find("the memory of this machine, 8192 MiB"),
            std::string::npos);
  second_version("/");
  put("/sys/fs/cgroup/memory.max", std::to_string(160 * kMiB));
  EXPECT_TRUE(check_host_capacity(160 * kMiB, read()).ok());
  const std::string said = check_host_capacity(1024 * kMiB, read()).message();
  for (const std::string& part :
       {std::string("host.capacity"), std::string("1024 MiB"), std::string("160 MiB"), at("/sys/fs/cgroup/memory.max"),
        std::string("lower host.capacity"), std::string("raise the limit")}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << ": " << said;
  }
  EXPECT_EQ(said.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace kvbm::machine_limits_test
