// The command where a container confines it: a seccomp filter that refuses io_uring in whole or in part, a control
// group with little memory, and the environment of a Kubernetes pod beside a service called kvbm.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "support/run_command.h"
#include "support/seccomp.h"
#include "support/temp_dir.h"

namespace confined_test {
namespace {

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;
using nlohmann::json;

constexpr int kNoFilter = 77;

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Confined : public ::testing::Test {
 protected:
  // Runs the command in a child that calls `confine` first. The exit code is kNoFilter if that returned false.
  Ran run_confined(const std::function<bool()>& confine, const std::string& arguments) {
    const std::string file = folder_.path() + "/said";
    const std::string line = "exec '" KVBM_COMMAND "' " + arguments + " > '" + file + "' 2>&1";
    const pid_t child = ::fork();
    if (child == 0) {
      if (!confine()) ::_exit(kNoFilter);
      ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(file)};
  }
  Ran run_refused(const std::vector<long>& calls, int error, const std::string& arguments) {
    return run_confined([&] { return kvbm::test::refuse_calls(calls, error); }, arguments);
  }
  // A replay with blocks that go to the disk and are read back.
  std::string replay(const std::string& host = "4MiB") {
    const std::string trace = folder_.path() + "/trace";
    if (!std::filesystem::exists(trace)) {
      EXPECT_EQ(run("trace generate --workload chat --requests 60 --seed 3 -o '" + trace + "'").exit_code, 0);
    }
    return "replay '" + trace + "' --host " + host + " --disk 128MiB --block-bytes 16KiB --settle --verify --json";
  }

  kvbm::test::TempDir folder_;
};

TEST_F(Confined, io_uring_that_is_refused_at_any_call_costs_no_block_and_is_told_once) {
  struct Case {
    std::vector<long> calls;
    int error;
    const char* said;  // null: nothing is wrong
  };
  const Case cases[] = {{{SYS_io_uring_setup}, EPERM, "io_uring_setup: Operation not permitted (errno 1)"},
                        {{SYS_io_uring_setup}, ENOSYS, "io_uring_setup: Function not implemented (errno 38)"},
                        {{SYS_io_uring_enter}, EPERM, "io_uring_enter: Operation not permitted (errno 1)"},
                        {{SYS_io_uring_enter}, ENOSYS, "io_uring_enter: Function not implemented (errno 38)"},
                        {{SYS_io_uring_register}, EPERM, nullptr},
                        {{SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register},
                         EACCES,
                         "io_uring_setup: Permission denied (errno 13)"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.said == nullptr ? "io_uring_register" : c.said);
    const Ran ran = run_refused(c.calls, c.error, replay());
    if (ran.exit_code == kNoFilter) GTEST_SKIP() << "no filter of system calls can be set here";
    ASSERT_EQ(ran.exit_code, 0) << ran.text;
    const json said = json::parse(ran.text);
    EXPECT_EQ(said.at("wrong_blocks"), 0);
    EXPECT_EQ(said.at("failed_blocks"), 0);
    EXPECT_GT(said.at("tiers").at(1).at("loads"), 0);
    EXPECT_EQ(said.at("tiers").at(1).at("errors"), 0);
    EXPECT_FALSE(said.at("tiers").at(1).at("disabled").get<bool>());
    int told = 0;
    for (const auto& warning : said.at("warnings")) told += contains(warning.get<std::string>(), "io_uring") ? 1 : 0;
    EXPECT_EQ(told, c.said == nullptr ? 0 : 1) << said.at("warnings");
    if (c.said != nullptr) {
      EXPECT_TRUE(contains(ran.text, c.said)) << said.at("warnings");
    }
  }
}

TEST_F(Confined, the_doctor_names_the_filter_and_not_the_setting) {
  for (const long call : {SYS_io_uring_setup, SYS_io_uring_enter}) {
    const Ran ran = run_refused({call}, EPERM, "doctor --json");
    if (ran.exit_code == kNoFilter) GTEST_SKIP() << "no filter of system calls can be set here";
    ASSERT_EQ(ran.exit_code, 0) << ran.text;
    for (const auto& finding : json::parse(ran.text)) {
      if (finding.at("name") != "io_uring") continue;
      EXPECT_EQ(finding.at("state"), "absent");
      EXPECT_TRUE(contains(finding.at("advice"), "seccomp")) << finding;
    }
  }
  // Asking for io_uring alone fails with the reason instead of using another engine.
  const Ran wanted = run_confined(
      [] {
        return ::setenv("KVBM_IO_ENGINE", "uring", 1) == 0 && kvbm::test::refuse_calls({SYS_io_uring_enter}, EPERM);
      },
      "config");
  EXPECT_NE(wanted.exit_code, 0);
  EXPECT_TRUE(contains(wanted.text, "io_uring_enter: Operation not permitted (errno 1)")) << wanted.text;
}

// A control group of this test's own, in the tree of either version; removed with its end.
class Group {
 public:
  explicit Group(const std::string& limit) {
    for (const auto& [parent, file] :
         {std::pair{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes"}, std::pair{"/sys/fs/cgroup", "/memory.max"}}) {
      path_ = std::string(parent) + "/kvbm-test-" + std::to_string(::getpid());
      if (!std::filesystem::exists(std::string(parent) + "/cgroup.procs") || ::mkdir(path_.c_str(), 0700) != 0)
        continue;
      std::ofstream out(path_ + file);
      out << limit << std::flush;
      if (out) return;
      ::rmdir(path_.c_str());
    }
    path_.clear();
  }
  ~Group() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  // Moves this process into it.
  [[nodiscard]] bool enter() const {
    std::ofstream out(path_ + "/cgroup.procs");
    out << ::getpid() << std::flush;
    return static_cast<bool>(out);
  }

 private:
  std::string path_;
};

TEST_F(Confined, the_memory_of_a_control_group_is_what_there_is) {
  const Group group(std::to_string(160 << 20));
  if (group.path().empty()) GTEST_SKIP() << "no control group with a limit of memory can be made here";
  const auto enter = [&] { return group.enter(); };
  const Ran doctor = run_confined(enter, "doctor --json");
  if (doctor.exit_code == kNoFilter) GTEST_SKIP() << "this process cannot enter the control group " << group.path();
  ASSERT_EQ(doctor.exit_code, 0) << doctor.text;
  EXPECT_TRUE(contains(doctor.text, group.path() + "/memory.")) << doctor.text;
  const Ran config = run_confined(enter, "config --json");
  EXPECT_EQ(config.exit_code, 0) << config.text;
  EXPECT_TRUE(contains(config.text, "\"40MiB\"") && contains(config.text, "a quarter of the memory")) << config.text;
  const Ran more = run_confined(enter, "config --set host.capacity=1GiB");
  EXPECT_EQ(more.exit_code, 0);
  EXPECT_TRUE(contains(more.text, "1024 MiB exceed the memory limit")) << more.text;
  const Ran replayed = run_confined(enter, replay("1GiB"));
  EXPECT_TRUE(contains(replayed.text, "1024 MiB exceed the memory limit")) << replayed.text;
}

TEST(ConfinedPod, services_that_are_called_kvbm_do_not_keep_it_from_starting) {
  const Ran pod =
      run("config", " 2>&1",
          "KVBM_SERVICE_HOST=10.0.0.1 KVBM_SERVICE_PORT=7000 KVBM_SERVICE_PORT_DATA=7000 KVBM_PORT=tcp://10.0.0.1:7000 "
          "KVBM_PORT_7000_TCP=tcp://10.0.0.1:7000 KVBM_PORT_7000_TCP_PROTO=tcp KVBM_PORT_7000_TCP_PORT=7000 "
          "KVBM_PORT_7000_TCP_ADDR=10.0.0.1 KVBM_NODE_SERVICE_HOST=10.0.0.2 KVBM_NODE_PORT=tcp://10.0.0.2:7000 "
          "KVBM_HOST_CAPACITY=8MiB");
  EXPECT_EQ(pod.exit_code, 0) << pod.text;
  EXPECT_TRUE(contains(pod.text, "host.capacity = \"8MiB\"")) << pod.text;
  EXPECT_EQ(run("config", " 2>&1", "KVBM_PORTS=1").exit_code, 2);
}

}  // namespace
}  // namespace confined_test
