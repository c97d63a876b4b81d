// The store for Mooncake against Mooncake's published package: the rules of stores, replays in processes that share
// nothing but the pool, and a master, a lender of memory and a client that are killed meanwhile.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "support/mooncake_pool.h"
#include "support/run_command.h"
#include "support/temp_dir.h"

namespace kvbm::test::store_mooncake_test {
namespace {

using nlohmann::json;

constexpr const char* kEnvironment = "KVBM_STORE_PATH='" KVBM_STORES "'";

// Runs `kvbm plugin check` and returns its output.
Ran check(const std::string& url, const std::string& more = "") {
  return run("plugin check '" + url + "' " + more, " 2>&1", kEnvironment);
}

class StoreMooncake : public ::testing::Test {
 protected:
  void SetUp() override {
    if (MooncakePool::python().empty()) GTEST_SKIP() << "Mooncake is not here: tools/setup --all-stores installs it";
    ASSERT_TRUE(pool_.start()) << pool_.log();
    ASSERT_EQ(run("trace generate --requests 120 --seed 3 -o " + trace()).exit_code, 0);
  }
  [[nodiscard]] std::string trace() const { return dir_.path() + "/trace.jsonl"; }
  [[nodiscard]] std::string url(const std::string& options = "") const {
    return "mooncake://" + pool_.address() + "/kv?python=" + MooncakePool::python() + "&log=" + dir_.path() + "/log" +
           options;
  }
  [[nodiscard]] std::string replay() const {
    return "replay " + trace() + " --host 16MiB --block-bytes 16KiB --verify --json --settle --store '" +
           url("&timeout=2s&linger=5ms") + "'";
  }
  // Starts a run, and returns how many blocks of earlier runs it found.
  double found_again() {
    const Ran ran = run(replay(), " 2>/dev/null", kEnvironment);
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    const json out = json::parse(ran.text, nullptr, false);
    if (!out.is_object()) return -1;
    EXPECT_EQ(out.value("wrong_blocks", -1), 0) << ran.text;
    return out.value("found_again", -1.0);
  }
  // Starts `kvbm` with these arguments, and writes its output to out.json.
  [[nodiscard]] pid_t start(const std::string& arguments) const {
    const std::string out = dir_.path() + "/out.json";
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    const int file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(file, 1);
    ::execl("/bin/sh", "sh", "-c", (kEnvironment + (" exec '" KVBM_COMMAND "' " + arguments)).c_str(), nullptr);
    ::_exit(127);
  }
  void wait_for_keys() const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (pool_.keys().size() < 3 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  // Runs a replay while `meddle` does something, and checks that nothing is wrong.
  template <class Meddle>
  void beside(const Meddle& meddle) {
    const std::string out = dir_.path() + "/out.json";
    const pid_t pid = start(replay());
    wait_for_keys();
    meddle(pid);
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    std::ifstream in(out);
    const json read = json::parse(in, nullptr, false);
    ASSERT_TRUE(read.is_object());
    EXPECT_EQ(read.value("wrong_blocks", -1), 0) << read;
    EXPECT_EQ(read.value("requests", -1), 120) << read;
  }
  void expect_found_soon() {
    (void)found_again();  // stores the lost blocks again
    EXPECT_GT(found_again(), 100);
  }

  MooncakePool pool_;
  TempDir dir_;
};

// Returns the child processes that any thread of the process has started.
std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> out;
  DIR* const tasks = ::opendir(("/proc/" + std::to_string(pid) + "/task").c_str());
  while (const dirent* task = tasks != nullptr ? ::readdir(tasks) : nullptr) {
    std::ifstream of_task("/proc/" + std::to_string(pid) + "/task/" + task->d_name + "/children");
    for (pid_t child = 0; of_task >> child;) out.push_back(child);
  }
  if (tasks != nullptr) ::closedir(tasks);
  return out;
}

// One rule does not hold: a read during a replacement may return bytes of both objects. kvbm replaces no object (docs).
TEST_F(StoreMooncake, keeps_the_rules_of_stores) {
  const Ran ran = check(url(), "--json");
  const json out = json::parse(ran.text, nullptr, false);
  ASSERT_TRUE(out.is_object()) << ran.text;
  size_t passed = 0;
  for (const json& rule : out.at("rules")) {
    if (rule.at("rule") == "whole") continue;
    EXPECT_NE(rule.at("verdict"), "failed") << rule;
    passed += rule.at("verdict") == "passed" ? 1 : 0;
  }
  EXPECT_GE(passed, 20U) << ran.text;
}

TEST_F(StoreMooncake, two_processes_share_their_blocks) {
  EXPECT_EQ(found_again(), 0);
  EXPECT_GT(found_again(), 1000);
}

TEST_F(StoreMooncake, the_process_itself_may_lend_the_memory) {
  pool_.kill_lender();
  ASSERT_TRUE(pool_.start_master()) << pool_.log();
  const Ran ran = run("replay " + trace() + " --host 16MiB --block-bytes 16KiB --verify --json --settle --store '" +
                          url("&lend=256MiB") + "'",
                      " 2>/dev/null", kEnvironment);
  const json out = json::parse(ran.text, nullptr, false);
  ASSERT_TRUE(out.is_object()) << ran.text;
  EXPECT_EQ(out.value("wrong_blocks", -1), 0) << ran.text;
  EXPECT_GT(out.at("tiers").back().value("blocks", 0), 1000) << ran.text;
}

TEST_F(StoreMooncake, objects_that_were_evicted_are_misses) {
  pool_.kill_lender();
  MooncakePool small;
  ASSERT_TRUE(small.start("16 MB")) << small.log();
  const std::string replay_of_small =
      "replay " + trace() + " --host 16MiB --block-bytes 16KiB --verify --json --settle --store 'mooncake://" +
      small.address() + "/kv?python=" + MooncakePool::python() + "&linger=5ms&pack=1MiB'";
  for (int i = 0; i < 2; ++i) {
    const Ran ran = run(replay_of_small, " 2>/dev/null", kEnvironment);
    const json out = json::parse(ran.text, nullptr, false);
    ASSERT_TRUE(out.is_object()) << ran.text;
    EXPECT_EQ(ran.exit_code, 0);
    EXPECT_EQ(out.value("wrong_blocks", -1), 0) << ran.text;
  }
}

TEST_F(StoreMooncake, the_master_is_killed_and_begins_anew) {
  beside([&](pid_t) {
    pool_.kill_master();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ASSERT_TRUE(pool_.start_master()) << pool_.log();
  });
  expect_found_soon();
}

TEST_F(StoreMooncake, the_master_is_frozen_for_a_while) {
  beside([&](pid_t) {
    pool_.freeze_master();
    std::this_thread::sleep_for(std::chrono::seconds(3));
    pool_.thaw_master();
  });
  expect_found_soon();
}

TEST_F(StoreMooncake, the_process_that_lends_the_memory_is_killed) {
  beside([&](pid_t) {
    pool_.kill_lender();
    ASSERT_TRUE(pool_.start_lender()) << pool_.log();
  });
  // The master needs ten seconds to notice the end of the lender.
  for (int i = 0; i < 20 && found_again() <= 100; ++i) std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_GT(found_again(), 100);
}

TEST_F(StoreMooncake, the_client_is_killed) {
  beside([&](pid_t pid) {
    for (const pid_t child : children_of(pid)) ::kill(child, SIGKILL);
  });
  expect_found_soon();
}

TEST_F(StoreMooncake, a_client_that_was_killed_has_another_one_after_it) {
  // Starts a process that uses the store continuously, for longer than this test takes.
  const pid_t pid = start("plugin check '" + url() + "'");
  const auto one_that_is_not = [&](pid_t other) {
    for (int i = 0; i < 6000; ++i) {
      const std::vector<pid_t> now = children_of(pid);
      if (!now.empty() && now.front() != other) return now.front();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return 0;
  };
  // The store is open when its client asks the master.
  const auto has_asked = [&] {
    std::ifstream in(dir_.path() + "/log");
    return contains({std::istreambuf_iterator<char>(in), {}}, "Registering local memory");
  };
  for (int i = 0; i < 6000 && !has_asked(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const pid_t first = one_that_is_not(0);
  ASSERT_GT(first, 0);
  ::kill(first, SIGKILL);
  const pid_t second = one_that_is_not(first);
  EXPECT_GT(second, 0);
  // The second process ends with its parent, however the parent ends.
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  const auto is_there = [&] { return std::ifstream("/proc/" + std::to_string(second) + "/cmdline").peek() != EOF; };
  for (int i = 0; i < 6000 && is_there(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(is_there());
}

TEST_F(StoreMooncake, is_down_from_the_beginning) {
  pool_.stop();
  const Ran ran = run(replay(), " 2>/dev/null", kEnvironment);
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  const json out = json::parse(ran.text, nullptr, false);
  ASSERT_TRUE(out.is_object()) << ran.text;
  EXPECT_EQ(out.value("wrong_blocks", -1), 0) << ran.text;
  EXPECT_GT(out.value("hits", 0), 100) << ran.text;
}

// These tests need no Mooncake.
TEST(StoreMooncakeDirectories, survive_what_happens_to_them) {
  if (std::system("python3 -c pass 2>/dev/null") != 0) GTEST_SKIP() << "python3 is not here";
  EXPECT_EQ(std::system("python3 -B '" KVBM_MOONCAKE_TESTS "/mooncake_directory.py' '" KVBM_MOONCAKE_CLIENT "'"), 0);
}

TEST(StoreMooncakeRefuses, what_is_wrong_in_a_sentence) {
#ifndef KVBM_MOONCAKE_MODULE
  GTEST_SKIP() << "the store for Mooncake was not built";
#endif
  for (const auto& [url, said] : {
           std::pair{"mooncake:///kv", "host:port of mooncake_master"},
           std::pair{"mooncake://host:port/kv", "host:port of mooncake_master"},
           std::pair{"mooncake://host:0/kv", "host:port of mooncake_master"},
           std::pair{"mooncake://user:word@host/kv", "has no users or passwords"},
           std::pair{"mooncake://host/a%23b", "the prefix of a store of Mooncake"},
           std::pair{"mooncake://host/kv?lend=7", "lend is 0 or 16MiB to 4096GiB"},
           std::pair{"mooncake://host/kv?memory=1MiB", "memory is 16MiB to 16GiB"},
           std::pair{"mooncake://host/kv?threads=0", "threads is a number from 1 to 64"},
           std::pair{"mooncake://host/kv?protocol=t/cp", "protocol is tcp, rdma"},
           std::pair{"mooncake://host/kv?log=here", "log is the whole path of a file"},
           std::pair{"mooncake://host/kv?pithon=python3", "did you mean python"},
           std::pair{"mooncake://host/kv?python=/no/such/python", "name a Python that has the package"},
       }) {
    const Ran ran = check(url);
    EXPECT_EQ(ran.exit_code, 2) << url << ": " << ran.text;
    EXPECT_TRUE(contains(ran.text, said)) << url << ": " << ran.text;
  }
}

// A Python that has another package, none, or one of Mooncake's that does not load or is too old.
TEST(StoreMooncakeRefuses, a_python_without_the_package) {
#ifndef KVBM_MOONCAKE_MODULE
  GTEST_SKIP() << "the store for Mooncake was not built";
#endif
  const TempDir dir;
  const auto says = [&](const std::string& module, const std::string& said) {
    const std::string folder = dir.path() + "/mooncake";
    ASSERT_EQ(std::system(("mkdir -p " + folder).c_str()), 0);
    std::ofstream(folder + "/__init__.py") << "";
    std::ofstream(folder + "/store.py") << module;
    const Ran ran = run("plugin check 'mooncake://127.0.0.1:9/kv'", " 2>&1",
                        kEnvironment + (" PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=" + dir.path()));
    EXPECT_EQ(ran.exit_code, 2) << ran.text;
    EXPECT_TRUE(contains(ran.text, said)) << ran.text;
  };
  says("raise ModuleNotFoundError()", "install the package mooncake-transfer-engine");
  says("raise ImportError('libcuda.so.1')", "install mooncake-transfer-engine-non-cuda");
  says("class MooncakeDistributedStore: pass", "is too old");
}

}  // namespace
}  // namespace kvbm::test::store_mooncake_test
