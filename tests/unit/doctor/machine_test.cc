// The doctor's findings on control groups and on the refusal of io_uring.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "doctor/finding.h"

namespace doctor_machine_test {
namespace {

using namespace kvbm;
using doctor::Finding;
using doctor::ring_advice;
using doctor::State;

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const Finding* find(const doctor::Findings& all, const std::string& name) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const Finding& f) { return f.name == name; });
  return at == all.end() ? nullptr : &*at;
}

TEST(DoctorMachine, a_filter_is_named_where_it_is_the_filter) {
  for (const int error : {EPERM, ENOSYS, EACCES}) {
    for (const char* const call : {"io_uring_setup", "io_uring_enter"}) {
      for (const char* const disabled : {"0", ""}) {
        const std::string said = ring_advice(call, error, disabled, true);
        EXPECT_TRUE(says(said, "seccomp")) << said;
        EXPECT_TRUE(says(said, call)) << said;
        EXPECT_TRUE(says(said, "Docker") && says(said, "Kubernetes")) << said;
        EXPECT_FALSE(says(said, "io_uring_disabled")) << said;
      }
    }
  }
}

TEST(DoctorMachine, the_setting_is_named_where_it_is_the_setting) {
  for (const char* const disabled : {"1", "2"}) {
    const std::string said = ring_advice("io_uring_setup", EPERM, disabled, false);
    EXPECT_TRUE(says(said, std::string("kernel.io_uring_disabled, which is ") + disabled)) << said;
    EXPECT_FALSE(says(said, "seccomp")) << said;
    const std::string both = ring_advice("io_uring_setup", EPERM, disabled, true);
    EXPECT_TRUE(says(both, "io_uring_disabled") && says(both, "seccomp")) << both;
  }
  // The setting does not refuse what uses a ring.
  EXPECT_FALSE(says(ring_advice("io_uring_enter", EPERM, "2", true), "io_uring_disabled"));
}

TEST(DoctorMachine, what_is_neither_is_not_blamed_on_either) {
  for (const int error : {ENOSYS, EPERM, EACCES, ENOMEM, EIO}) {
    const std::string said = ring_advice("io_uring_setup", error, "0", false);
    EXPECT_FALSE(says(said, "seccomp profile") || says(said, "io_uring_disabled")) << said;
    EXPECT_TRUE(says(said, "pread")) << said;
  }
  EXPECT_TRUE(says(ring_advice("io_uring_setup", ENOSYS, "", false), "kernel"));
  EXPECT_TRUE(says(ring_advice("io_uring_setup", ENOMEM, "0", false), "memory"));
}

TEST(DoctorMachine, limits_of_control_groups_are_told_beside_what_the_machine_has) {
  MachineLimits limits;
  limits.machine_memory = uint64_t{25} << 30;
  limits.machine_available = uint64_t{23} << 30;
  limits.machine_processors = 8;
  doctor::Findings all;
  doctor::probe_memory(limits, all);
  doctor::probe_cpu(limits, all);
  EXPECT_EQ(find(all, "control group"), nullptr);
  limits.memory_limit = uint64_t{160} << 20;
  limits.memory_used = uint64_t{100} << 20;
  limits.memory_file = "/sys/fs/cgroup/memory.max";
  doctor::Findings memory;
  doctor::probe_memory(limits, memory);
  ASSERT_NE(find(memory, "control group"), nullptr);
  EXPECT_EQ(find(memory, "control group")->state, State::limited);
  EXPECT_TRUE(says(find(memory, "control group")->value, "/sys/fs/cgroup/memory.max"));
  EXPECT_TRUE(says(find(memory, "control group")->advice, "host.capacity"));
  EXPECT_TRUE(says(find(memory, "available")->value, "60.00 MiB")) << find(memory, "available")->value;
  limits.processor_limit = 1.5;
  limits.processor_file = "/sys/fs/cgroup/cpu.max";
  doctor::Findings cpu;
  doctor::probe_cpu(limits, cpu);
  ASSERT_NE(find(cpu, "control group"), nullptr);
  EXPECT_TRUE(says(find(cpu, "control group")->value, "1.5 processors"));
  EXPECT_EQ(find(cpu, "control group")->state, State::limited);
}

}  // namespace
}  // namespace doctor_machine_test
