// Nodes that know each other from a file. A node that adds its line is found, one that leaves is dropped, and the
// file may be edited. Also tests the facts that a router reads about the members.
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

namespace node_members_test {
namespace {

using nlohmann::json;

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class NodeMembers : public ::testing::Test {
 protected:
  ~NodeMembers() override {
    for (const pid_t pid : running_) end(pid, SIGKILL);
  }

  // `kvbm node` of that name, joined through the file.
  pid_t start(const std::string& name) {
    std::vector<std::string> arguments = {"kvbm",   "node",   "--listen", "127.0.0.1:0",  "--host", "8MiB",
                                          "--json", "--name", name,       "--peers-file", members_, "--join"};
    const pid_t pid = ::fork();
    if (pid == 0) {
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(126);
      ::execv(KVBM_COMMAND, argv.data());
      ::_exit(127);
    }
    running_.push_back(pid);
    return pid;
  }
  int end(pid_t pid, int signal) {
    int status = 0;
    ::kill(pid, signal);
    ::waitpid(pid, &status, 0);
    std::erase(running_, pid);
    return status;
  }
  // Waits up to half a minute for the condition.
  template <class Check>
  static bool soon(const Check& check) {
    for (int tries = 0; tries < 600; ++tries) {
      if (check()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
  [[nodiscard]] size_t ready_nodes() const {
    const json rows =
        json::parse(run("peers --json --timeout 1 --peers-file '" + members_ + "'", "").text, nullptr, false);
    size_t n = 0;
    for (const json& row : rows) n += row.is_object() && row.value("state", "") == "ready" ? 1 : 0;
    return n;
  }

  kvbm::test::TempDir folder_;
  const std::string members_ = folder_.path() + "/members";
  std::vector<pid_t> running_;
};

TEST_F(NodeMembers, who_writes_itself_into_the_file_is_found_and_who_ends_takes_itself_out) {
  const pid_t one = start("one");
  (void)start("two");
  ASSERT_TRUE(soon([&] { return ready_nodes() == 2; })) << read_file(members_);
  const std::string path = folder_.path() + "/file";
  std::ofstream(path) << std::string(3'000'000, 'x');
  const std::string pool = " --peers-file '" + members_ + "' ";
  ASSERT_EQ(run("put --replicas 2" + pool + "file '" + path + "'").exit_code, 0);
  // Both nodes have the whole file, and a router sees that.
  const Ran located = run("locate --json" + pool + "file", "");
  ASSERT_EQ(located.exit_code, 0) << located.text;
  const json rows = json::parse(located.text).at("locations");
  ASSERT_EQ(rows.size(), 2U) << located.text;
  for (const json& row : rows) {
    EXPECT_EQ(row.at("leading_blocks"), 3) << located.text;
    EXPECT_EQ(row.at("tier"), 0);
    EXPECT_GT(row.at("bytes"), 3'000'000);
    EXPECT_TRUE(contains(row.at("address"), "127.0.0.1:"));
  }
  EXPECT_EQ(run("locate" + pool + "nothing").exit_code, 1);
  // One node ends. The copy on the other is enough.
  EXPECT_EQ(end(one, SIGTERM), 0);
  EXPECT_TRUE(contains(read_file(members_), "leave=one"));
  ASSERT_TRUE(soon([&] { return ready_nodes() == 1; }));
  const std::string back = folder_.path() + "/back";
  EXPECT_EQ(run("get" + pool + "file -o '" + back + "'").exit_code, 0);
  EXPECT_EQ(read_file(back), read_file(path));
}

TEST_F(NodeMembers, a_line_that_is_added_or_taken_out_by_hand_is_noticed) {
  (void)start("one");
  ASSERT_TRUE(soon([&] { return ready_nodes() == 1; }));
  const std::string others = folder_.path() + "/others";
  const auto metrics = [&] { return run("peers --json --peers-file '" + others + "' --timeout 0.5").text; };
  // A second file, written by the test, for a node that only dials.
  std::ofstream(others) << "# nobody yet\n";
  EXPECT_TRUE(contains(metrics(), "no node answers"));
  std::string line = read_file(members_);
  std::ofstream(others) << line;
  EXPECT_TRUE(contains(metrics(), "\"ready\"")) << line;
  std::ofstream(others) << line << "\nleave=one\n";
  EXPECT_TRUE(contains(metrics(), "no node answers"));
  // The name is checked: another node at the address is not the member.
  line.replace(line.find("name=one"), 8, "name=two");
  std::ofstream(others) << line;
  EXPECT_TRUE(contains(metrics(), "no node answers"));
}

TEST_F(NodeMembers, a_file_that_cannot_be_used_is_named_with_the_line) {
  std::ofstream(members_) << "name=one address=127.0.0.1:1\nnonsense\n";
  const Ran nonsense = run("node --listen 127.0.0.1:0 --peers-file '" + members_ + "'");
  EXPECT_EQ(nonsense.exit_code, 2);
  EXPECT_TRUE(contains(nonsense.text, "members:2: nonsense")) << nonsense.text;
  const Ran nowhere = run("node --listen 127.0.0.1:0 --peers-file /nonexistent/members");
  EXPECT_NE(nowhere.exit_code, 0);
  EXPECT_TRUE(contains(nowhere.text, "/nonexistent/members")) << nowhere.text;
  const Ran nameless = run("node --listen 127.0.0.1:0 --join --peers-file '" + members_ + "'");
  EXPECT_EQ(nameless.exit_code, 2);
  EXPECT_TRUE(contains(nameless.text, "node.name")) << nameless.text;
}

}  // namespace
}  // namespace node_members_test
