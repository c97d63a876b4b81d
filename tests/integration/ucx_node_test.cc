// Two nodes whose links UCX carries, over loopback, between real processes: a file comes back byte for byte, a killed
// node is noticed, and what cannot be is refused. Where the module is not built these are skipped.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/run_command.h"
#include "support/temp_dir.h"

namespace {

using nlohmann::json;

using kvbm::test::contains;
using kvbm::test::Ran;

#ifdef KVBM_UCX_MODULE
const std::string kModule = std::string("KVBM_UCX_PATH='") + KVBM_UCX_MODULE + "'";

Ran run(const std::string& arguments, const char* after = " 2>&1") {
  return kvbm::test::run(arguments, after, kModule);
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class UcxNode : public ::testing::Test {
 protected:
  ~UcxNode() override {
    if (pid_ > 0) end(SIGKILL);
  }
  void start() {
    const std::string file = folder_.path() + "/address";
    std::vector<std::string> arguments = {"kvbm",   "node",        "--listen", "127.0.0.1:0",    "--host", "64MiB",
                                          "--json", "--transport", "ucx",      "--address-file", file};
    pid_ = ::fork();
    if (pid_ == 0) {
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      ::setenv("KVBM_UCX_PATH", KVBM_UCX_MODULE, 1);
      if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(126);
      ::execv(KVBM_COMMAND, argv.data());
      ::_exit(127);
    }
    for (int tries = 0; tries < 6000 && address_.empty(); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      address_ = read_file(file);
      if (::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
      if (pid_ < 0) break;
    }
    while (!address_.empty() && address_.back() == '\n') address_.pop_back();
  }
  int end(int signal) {
    int status = 0;
    ::kill(pid_, signal);
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

  kvbm::test::TempDir folder_;
  std::string address_;
  pid_t pid_ = -1;
};

TEST_F(UcxNode, a_file_goes_there_and_comes_back) {
  start();
  ASSERT_FALSE(address_.empty());
  const std::string peer = " --transport ucx --peer " + address_ + " ";
  const std::string path = folder_.path() + "/file";
  std::string text;
  for (uint64_t i = 0; text.size() < 5'000'000; ++i) text += std::to_string(i * 0x9E3779B97F4A7C15ULL);
  std::ofstream(path) << text;
  const Ran put = run("put" + peer + "file '" + path + "'");
  ASSERT_EQ(put.exit_code, 0) << put.text;
  const std::string back = folder_.path() + "/back";
  const Ran got = run("get" + peer + "file -o '" + back + "'");
  ASSERT_EQ(got.exit_code, 0) << got.text;
  EXPECT_TRUE(read_file(back) == text);
  EXPECT_EQ(json::parse(run("locate --json" + peer + "file", "").text).at("locations")[0].at("leading_blocks"), 5);
  const int status = end(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const Ran gone = run("get --timeout 1" + peer + "file");
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_TRUE(contains(gone.text, "no node answers")) << gone.text;
}

TEST_F(UcxNode, beyond_this_machine_it_wants_a_key_and_a_device) {
  const std::string key = folder_.path() + "/key";
  std::ofstream(key) << "a key of the pool, long enough\n";
  const Ran open = run("node --transport ucx --listen 0.0.0.0:0 --key-file '" + key + "'");
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_TRUE(contains(open.text, "node.ucx_devices")) << open.text;
}

TEST_F(UcxNode, tcp_is_what_is_used_here_without_being_told_otherwise) {
  const Ran doctor = run("doctor --json", "");
  EXPECT_TRUE(contains(doctor.text, "\"node transport\"")) << doctor.text;
  if (::access("/sys/class/infiniband", F_OK) != 0) {
    EXPECT_TRUE(contains(doctor.text, "tcp: no RDMA device")) << doctor.text;
  }
}
#else
#ifndef KVBM_UCX_SKIPPED
#define KVBM_UCX_SKIPPED "the UCX module is not built here"
#endif
TEST(UcxNode, is_skipped) { GTEST_SKIP() << KVBM_UCX_SKIPPED; }
#endif

TEST(UcxModule, that_is_not_there_is_an_error_that_says_where_it_was_looked_for) {
  const Ran none =
      kvbm::test::run("node --transport ucx --listen 127.0.0.1:0", " 2>&1", "KVBM_NODE_UCX_MODULE=/nonexistent");
  EXPECT_NE(none.exit_code, 0);
  EXPECT_TRUE(contains(none.text, "transport unavailable") && contains(none.text, "/nonexistent")) << none.text;
}

}  // namespace
