// kvbm replay with nodes of a pool as its last tier. Blocks are stored there and read back unchanged, a node may be
// killed during the replay, and an address without a listener is named.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "support/run_command.h"
#include "support/temp_dir.h"

namespace replay_nodes_test {
namespace {

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;
using nlohmann::json;

// `kvbm node` on a port of its own choice.
class Node {
 public:
  explicit Node(const std::string& file) {
    const Ran started =
        run("node --listen 127.0.0.1:0 --host 64MiB --block-bytes 16KiB --json --address-file '" + file + "'",
            " > /dev/null 2>&1 & echo $!");
    pid_ = std::atoi(started.text.c_str());
    for (int tries = 0; tries < 6000 && address_.empty(); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::ifstream(file) >> address_;
    }
  }
  ~Node() { end(SIGKILL); }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  void end(int signal) {
    if (pid_ > 0) ::kill(pid_, signal);
    pid_ = 0;
  }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  pid_t pid_ = 0;
  std::string address_;
};

class ReplayNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    trace_ = folder_.path() + "/trace.jsonl";
    ASSERT_EQ(run("trace generate -o '" + trace_ + "'").exit_code, 0);
  }
  Ran replay(const std::string& peers, int limit) {
    return run("replay '" + trace_ + "' --host 4MiB --block-bytes 16KiB --verify --json --limit " +
                   std::to_string(limit) + " --peer " + peers,
               " 2>/dev/null");
  }
  kvbm::test::TempDir folder_;
  std::string trace_;
};

TEST_F(ReplayNodes, blocks_go_to_the_nodes_and_come_back_right_also_after_one_was_killed) {
  Node a(folder_.path() + "/a");
  Node b(folder_.path() + "/b");
  ASSERT_FALSE(a.address().empty());
  ASSERT_FALSE(b.address().empty());
  const Ran first = replay(a.address() + "," + b.address(), 150);
  ASSERT_EQ(first.exit_code, 0) << first.text;
  const json one = json::parse(first.text);
  EXPECT_EQ(one.at("wrong_blocks"), 0);
  EXPECT_GT(one.at("tiers").at(1).at("stores"), 0);
  EXPECT_GT(one.at("hits"), 0);
  b.end(SIGKILL);
  const Ran second = replay(a.address(), 150);  // another process: what it finds, it finds at the node
  ASSERT_EQ(second.exit_code, 0) << second.text;
  const json two = json::parse(second.text);
  EXPECT_EQ(two.at("wrong_blocks"), 0);
  EXPECT_GT(two.at("found_again"), 0);
}

TEST_F(ReplayNodes, an_address_at_which_nobody_answers_is_named) {
  const Ran ran = run("replay '" + trace_ + "' --host 4MiB --limit 10 --peer 127.0.0.1:1");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_TRUE(contains(ran.text, "127.0.0.1:1")) << ran.text;
}

}  // namespace
}  // namespace replay_nodes_test
