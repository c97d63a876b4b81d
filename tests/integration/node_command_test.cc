// kvbm node, put, get, exists and peers between real processes, as a user runs them in two shells. Bytes arrive
// unchanged, a killed node costs only its own blocks, and a process outside the pool gets a message that says so.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/child_signal.h"
#include "support/other_user.h"
#include "support/path_attacker.h"
#include "support/pool_keys.h"
#include "support/run_command.h"
#include "support/small_file_system.h"
#include "support/temp_dir.h"

namespace node_command_test {
namespace {

using nlohmann::json;

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;
using kvbm::test::write_own_file;

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Room for a few blocks of 1 MiB. Memory that is shared is faulted in whole, by every process that has it.
constexpr const char* kSmallHost = "8MiB";

// `kvbm node` on a port of its own choice, with kSmallHost unless the arguments say otherwise.
class NodeProcess {
 public:
  NodeProcess(const std::string& folder, std::vector<std::string> arguments, const std::string& listen = "127.0.0.1:0",
              const std::string& log = "") {
    static int count = 0;
    const std::string file = folder + "/address-" + std::to_string(++count);
    if (std::find(arguments.begin(), arguments.end(), "--host") == arguments.end()) {
      arguments.insert(arguments.end(), {"--host", kSmallHost});
    }
    arguments.insert(arguments.begin(), {"kvbm", "node", "--listen", listen, "--address-file", file});
    if (log.empty()) arguments.emplace_back("--json");  // which is silent
    pid_ = ::fork();
    if (pid_ == 0) {
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(126);
      if (!log.empty() && std::freopen(log.c_str(), "w", stderr) == nullptr) ::_exit(126);
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
  ~NodeProcess() {
    if (pid_ > 0) end(SIGKILL);
  }
  NodeProcess(const NodeProcess&) = delete;
  NodeProcess& operator=(const NodeProcess&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  void send(int signal) const { kvbm::test::signal_child(pid_, signal); }
  int end(int signal) {
    ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  std::string address_;
};

class NodeCommand : public ::testing::Test {
 protected:
  // A file of the given size, with content that repeats nowhere.
  std::string make(const std::string& name, size_t bytes) {
    std::string text;
    for (uint64_t i = 0; text.size() < bytes; ++i) {
      const uint64_t word = (i + 1) * 0x9E3779B97F4A7C15ULL;
      text.append(reinterpret_cast<const char*>(&word), sizeof word);
    }
    text.resize(bytes);
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  kvbm::test::TempDir folder_;
};

TEST_F(NodeCommand, a_file_put_by_one_process_is_got_by_another_byte_for_byte) {
  NodeProcess node(folder_.path(), {"--host", "16MiB"});
  ASSERT_FALSE(node.address().empty());
  const std::string peer = " --peer " + node.address() + " ";
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100'000}, size_t{5'000'000}}) {
    const std::string name = "file-" + std::to_string(bytes);
    const std::string path = make(name, bytes);
    const Ran put = run("put" + peer + name + " '" + path + "'");
    ASSERT_EQ(put.exit_code, 0) << put.text;
    const std::string back = folder_.path() + "/back";
    const Ran got = run("get" + peer + name + " -o '" + back + "' --json");
    ASSERT_EQ(got.exit_code, 0) << got.text;
    EXPECT_EQ(json::parse(got.text).at("bytes"), bytes);
    EXPECT_EQ(read_file(back), read_file(path));
  }
  EXPECT_EQ(run("exists" + peer + "file-1").exit_code, 0);
  const Ran missing = run("exists" + peer + "nothing");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_TRUE(contains(missing.text, "no")) << missing.text;
  const Ran nothing = run("get" + peer + "nothing");
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_TRUE(contains(nothing.text, "no node has it")) << nothing.text;
  const json rows = json::parse(run("peers --json" + peer, "").text);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].at("state"), "ready");
  EXPECT_GT(rows[0].at("records"), 5);
  EXPECT_EQ(rows[0].at("coding").at("setting"), "off");
  EXPECT_EQ(rows[0].at("coding").at("sealed"), false);
  const json coded = json::parse(run("peers --json --codec auto" + peer, "").text);
  EXPECT_EQ(coded.at(0).at("coding").at("setting"), "auto");
  EXPECT_EQ(coded.at(0).at("coding").at("mode"), "off") << "nothing was measured yet";
  EXPECT_EQ(coded.at(0).at("coding").at("ratio"), nullptr);
  EXPECT_TRUE(contains(run("peers --codec fast" + peer, "").text, "fast"));
  const int status = node.end(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(NodeCommand, blocks_of_another_size_are_refused_with_both_sizes_the_address_and_the_remedy) {
  NodeProcess node(folder_.path(), {});  // of 1 MiB
  ASSERT_FALSE(node.address().empty());
  const std::string path = make("file", 5'000'000);
  const std::string peer = " --peer " + node.address() + " ";
  const auto expect = [](const Ran& ran, const std::vector<std::string>& parts) {
    EXPECT_EQ(ran.exit_code, 1) << ran.text;
    for (const std::string& part : parts) EXPECT_TRUE(contains(ran.text, part)) << part << ": " << ran.text;
    EXPECT_FALSE(contains(ran.text, "raise the capacity")) << ran.text;
  };
  expect(run("put --block-bytes 4MiB" + peer + "file '" + path + "'"),
         {node.address(), "1048576", "4194304", "--block-bytes"});
  ASSERT_EQ(run("put" + peer + "file '" + path + "'").exit_code, 0);
  expect(run("get --block-bytes 512KiB" + peer + "file -o /dev/null"),
         {node.address(), "524288", "give --block-bytes 1048576"});
  expect(run("get --block-bytes 4MiB" + peer + "file -o /dev/null"),
         {node.address(), "4194304", "give --block-bytes 1048576"});
}

TEST_F(NodeCommand, a_file_that_the_pool_cannot_hold_is_not_said_to_be_stored) {
  NodeProcess node(folder_.path(), {});  // 8 MiB
  ASSERT_FALSE(node.address().empty());
  const std::string peer = " --peer " + node.address() + " ";
  const Ran large = run("put" + peer + "large '" + make("large", 10'000'000) + "'");
  EXPECT_EQ(large.exit_code, 1);
  const std::string here = node.address();
  for (const char* part : {here.c_str(), "nothing was stored", "takes 9.5", "--host"}) {
    EXPECT_TRUE(contains(large.text, part)) << part << ": " << large.text;
  }
  EXPECT_EQ(run("exists" + peer + "large").exit_code, 1) << "nothing of it was to be stored";
}

// Two that fit only by themselves: each is there whole when it has been stored, at the cost of the other.
TEST_F(NodeCommand, a_file_that_was_said_to_be_stored_is_there_and_the_older_one_goes_for_it) {
  using File = std::pair<std::string, size_t>;
  const File large{"first", 14'000'000};
  const File small{"second", 5'000'000};
  for (const auto& [older, newer] : {std::pair(large, small), std::pair(small, large)}) {
    NodeProcess node(folder_.path(), {"--host", "16MiB"});
    ASSERT_FALSE(node.address().empty());
    const std::string peer = " --peer " + node.address() + " ";
    for (const auto& [name, bytes] : {older, newer}) {
      const Ran put = run("put" + peer + name + " '" + make(name, bytes) + "'");
      EXPECT_EQ(put.exit_code, 0) << put.text;
      const Ran there = run("exists" + peer + name);
      EXPECT_EQ(there.exit_code, 0) << name << ": " << there.text;
      const Ran got = run("get" + peer + name + " -o /dev/null");
      EXPECT_EQ(got.exit_code, 0) << name << ": " << got.text;
    }
    const Ran said = run("exists" + peer + older.first);
    // Some blocks are left, but without the first one they are unreachable.
    EXPECT_EQ(said.text, said.exit_code == 3 ? "in part\n" : "no\n");
    const json told = json::parse(run("exists --json" + peer + older.first, "").text);
    EXPECT_EQ(told.at("exists"), false);
    EXPECT_EQ(told.at("in_part"), said.exit_code == 3);
    EXPECT_EQ(run("get" + peer + older.first + " -o /dev/null").exit_code, 1);
  }
}

TEST_F(NodeCommand, a_name_stands_for_one_file) {
  NodeProcess node(folder_.path(), {});
  ASSERT_FALSE(node.address().empty());
  const std::string peer = " --peer " + node.address() + " ";
  const std::string first = make("first", 5'000'000);
  ASSERT_EQ(run("put" + peer + "notes '" + first + "'").exit_code, 0);
  for (const size_t bytes : {size_t{6}, size_t{6'000'000}}) {
    const Ran other = run("put" + peer + "notes '" + make("other", bytes) + "'");
    EXPECT_EQ(other.exit_code, 2) << other.text;
    for (const char* part : {"another file is stored under that name", "5.00 MB", "choose another name"}) {
      EXPECT_TRUE(contains(other.text, part)) << part << ": " << other.text;
    }
  }
  EXPECT_EQ(run("put" + peer + "notes '" + first + "'").exit_code, 0) << "the same once more";
  ASSERT_EQ(run("get" + peer + "notes -o '" + folder_.path() + "/back'").exit_code, 0);
  EXPECT_TRUE(read_file(folder_.path() + "/back") == read_file(first));
}

// Whichever blocks of the older file are left: none of them is taken for one of the newer.
TEST_F(NodeCommand, what_a_lost_node_leaves_of_a_file_is_not_mixed_with_another_of_its_name) {
  const std::string older = make("older", 2'500'000);  // 20 blocks: each node gets some
  const std::string newer = make("newer", 2'625'000);
  const std::vector<std::string> small_blocks = {"--block-bytes", "128KiB"};
  for (const bool first_goes : {true, false}) {
    NodeProcess one(folder_.path(), small_blocks);
    NodeProcess two(folder_.path(), small_blocks);
    ASSERT_FALSE(one.address().empty() || two.address().empty());
    const std::string both = " --block-bytes 128KiB --peer " + one.address() + "," + two.address();
    ASSERT_EQ(run("put" + both + " f '" + older + "'").exit_code, 0);
    NodeProcess& lost = first_goes ? one : two;
    const std::string left = (first_goes ? two : one).address();
    lost.end(SIGKILL);
    NodeProcess fresh(folder_.path(), small_blocks);
    ASSERT_FALSE(fresh.address().empty());
    const std::string peers = " --block-bytes 128KiB --peer " + left + "," + fresh.address() + " ";
    const Ran put = run("put" + peers + "f '" + newer + "'");
    const Ran got = run("get" + peers + "f -o '" + folder_.path() + "/back'");
    if (put.exit_code == 2) {
      EXPECT_TRUE(contains(put.text, "another file")) << put.text;  // the older one's first block is left
      EXPECT_EQ(got.exit_code, 1) << got.text;
    } else {
      EXPECT_EQ(put.exit_code, 0) << put.text;
      ASSERT_EQ(got.exit_code, 0) << got.text;
      EXPECT_TRUE(read_file(folder_.path() + "/back") == read_file(newer));
    }
  }
}

TEST_F(NodeCommand, what_a_shared_tier_set_does_not_keep_is_not_said_to_be_stored) {
  const std::string set = " --share '" + folder_.path() + "/set' ";
  const Ran alone = run("put --host 8MiB" + set + "file '" + make("file", 1'000'000) + "'");
  EXPECT_EQ(alone.exit_code, 1) << alone.text;
  EXPECT_TRUE(contains(alone.text, "the file would be lost")) << alone.text;
  const std::string disk = set + "--disk 64MiB ";
  const Ran large = run("put --host 96MiB" + disk + "large '" + make("large", 80'000'000) + "'");
  EXPECT_EQ(large.exit_code, 3) << large.text;
  EXPECT_TRUE(contains(large.text, "--disk")) << large.text;
  EXPECT_EQ(run("put --host 8MiB" + disk + "file '" + make("file", 1'000'000) + "'").exit_code, 0);
  EXPECT_EQ(run("exists --host 8MiB" + disk + "file").exit_code, 0);
}

TEST_F(NodeCommand, what_is_put_durably_is_there_after_the_next_start_and_only_a_disk_promises_it) {
  const std::string set = " --share '" + folder_.path() + "/set' ";
  const std::string disk = set + "--disk 64MiB --host 64MiB ";
  const std::string file = make("file", 1'000'000);
  const Ran put = run("put --durable" + disk + "file '" + file + "'");
  ASSERT_EQ(put.exit_code, 0) << put.text;
  ASSERT_EQ(run("get" + disk + "file -o '" + folder_.path() + "/back'").exit_code, 0);
  EXPECT_TRUE(read_file(folder_.path() + "/back") == read_file(file));
  const Ran pool = run("put --durable --peer 127.0.0.1:1 file '" + file + "'");
  EXPECT_EQ(pool.exit_code, 2) << pool.text;
  EXPECT_TRUE(contains(pool.text, "--share DIR --disk SIZE")) << pool.text;
}

// Blocks in a client's own host are lost when it exits. Only the daemon that owns the set counts.
TEST_F(NodeCommand, what_a_daemons_shared_tier_set_does_not_keep_is_not_said_to_be_stored) {
  for (const bool on_disk : {true, false}) {
    const std::string directory = folder_.path() + (on_disk ? "/disk" : "/memory");
    std::vector<std::string> arguments = {"--share", directory, "--host", "16MiB"};
    if (on_disk) arguments.insert(arguments.end(), {"--disk", "64MiB"});
    NodeProcess owner(folder_.path(), arguments, "");
    const std::string set = " --share '" + directory + "'" + (on_disk ? " --disk 64MiB " : " ");
    const std::string small_host = " --host 8MiB" + set;
    // The file is larger than the owner's tiers, but the client's own host could hold all of it.
    const Ran large = on_disk ? run("put --host 96MiB" + set + "large '" + make("large", 80'000'000) + "'")
                              : run("put --host 32MiB" + set + "large '" + make("large", 30'000'000) + "'");
    EXPECT_TRUE(large.exit_code == 1 || large.exit_code == 3) << large.exit_code << large.text;
    EXPECT_TRUE(contains(large.text, "--disk")) << large.text;
    EXPECT_NE(run("exists" + small_host + "large").exit_code, 0);
    // A busy disk may not have space for the whole file yet. Then the command reports it, and the file is put again.
    const std::string file = make("file", 5'000'000);
    Ran small = run("put" + small_host + "file '" + file + "'");
    for (int again = 0; again < 5 && small.exit_code == 3; ++again) {
      EXPECT_NE(run("exists" + small_host + "file").exit_code, 0) << small.text;
      small = run("put" + small_host + "file '" + file + "'");
    }
    EXPECT_EQ(small.exit_code, 0) << small.text << "\nbefore it: " << large.text;
    EXPECT_EQ(run("exists" + small_host + "file").exit_code, 0);
    EXPECT_EQ(owner.end(SIGKILL), SIGKILL);
    // A set without a disk keeps nothing, as documented.
    if (on_disk) {
      EXPECT_EQ(run("exists" + small_host + "file").exit_code, 0);
    }
  }
}

TEST_F(NodeCommand, a_full_file_system_is_told_to_whoever_stores_and_to_the_log_and_counted) {
  const kvbm::test::SmallFileSystem small(70ULL << 20);
  if (!small.ok()) GTEST_SKIP() << small.why();
  const std::string log = folder_.path() + "/log";
  const std::string set = " --share '" + small.path() + "/set' --disk 256MiB ";
  NodeProcess owner(folder_.path(), {"--host", "64MiB", "--share", small.path() + "/set", "--disk", "256MiB"}, "", log);
  EXPECT_TRUE(contains(read_file(log), "less room than its capacity")) << read_file(log);
  int refused = 0;
  for (const char* name : {"one", "two", "three", "large"}) {
    const bool large = std::string(name) == "large";
    const Ran put = run("put --host 48MiB" + set + name + " '" + make(name, large ? 200'000'000 : 40'000'000) + "'");
    if (put.exit_code == 0) continue;
    ++refused;
    EXPECT_TRUE(put.exit_code == 1 || put.exit_code == 3) << put.text;
    EXPECT_TRUE(contains(put.text, "free space")) << put.text;
  }
  EXPECT_GT(refused, 0) << "all of them were there at some time: this shows nothing";
  EXPECT_EQ(run("put --host 8MiB" + set + "small '" + make("small", 5'000'000) + "'").exit_code, 0);
  const std::string said = read_file(log);
  EXPECT_TRUE(contains(said, "is full")) << said;
  EXPECT_TRUE(contains(said, "free space there, or lower the tier's capacity")) << said;
  EXPECT_EQ(owner.end(SIGKILL), SIGKILL);
  EXPECT_EQ(run("exists --host 8MiB" + set + "small").exit_code, 0);
}

// As large as the pool by its bytes, but a block's head takes room too.
TEST_F(NodeCommand, of_a_file_that_was_kept_in_part_it_is_said_how_much_is_there) {
  NodeProcess node(folder_.path(), {"--host", "16MiB"});
  ASSERT_FALSE(node.address().empty());
  const std::string peer = " --peer " + node.address() + " ";
  const std::string path = make("file", 16'750'000);
  const Ran put = run("put" + peer + "file '" + path + "'");
  EXPECT_EQ(put.exit_code, 3) << put.text;
  for (const char* part : {"in part", "of 16 blocks", "--host"}) EXPECT_TRUE(contains(put.text, part)) << put.text;
  const int there = run("exists" + peer + "file").exit_code;
  EXPECT_TRUE(there == 3 || there == 1) << there;  // 1: its first block is what is not there
  const json again = json::parse(run("put --json" + peer + "file '" + path + "'", " 2>/dev/null").text);
  EXPECT_EQ(again.at("blocks"), 16);
  EXPECT_GT(again.at("blocks_kept"), 0);
  EXPECT_LT(again.at("blocks_kept"), 16);
}

TEST_F(NodeCommand, several_nodes_share_the_keys_and_the_one_that_is_killed_costs_only_its_own) {
  NodeProcess one(folder_.path(), {"--name", "one", "--host", "16MiB"});
  NodeProcess two(folder_.path(), {"--name", "two", "--host", "16MiB"});
  ASSERT_FALSE(one.address().empty() || two.address().empty());
  const std::string both = " --peer " + one.address() + "," + two.address() + " ";
  constexpr int kFiles = 12;
  for (int i = 0; i < kFiles; ++i) {
    const std::string name = "file-" + std::to_string(i);
    const Ran put = run("put" + both + name + " '" + make(name, 1000 + static_cast<size_t>(i)) + "'");
    ASSERT_EQ(put.exit_code, 0) << put.text;
  }
  const json rows = json::parse(run("peers --json" + both, "").text);
  for (const json& row : rows) EXPECT_GT(row.at("records"), 0) << "a node got nothing";
  two.end(SIGKILL);
  int kept = 0;
  for (int i = 0; i < kFiles; ++i) {
    const std::string name = "file-" + std::to_string(i);
    const std::string back = folder_.path() + "/back";
    const Ran got = run("get" + both + name + " -o '" + back + "'");
    if (got.exit_code != 0) continue;
    ++kept;
    EXPECT_EQ(read_file(back), read_file(folder_.path() + "/" + name));
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, kFiles) << "the killed node had nothing";
}

TEST_F(NodeCommand, a_disk_brings_files_back_after_a_kill) {
  const std::string disk = folder_.path() + "/disk";
  const std::string path = make("file", 3'000'000);
  {
    NodeProcess node(folder_.path(), {"--disk", "256MiB", "--disk-path", disk});
    ASSERT_FALSE(node.address().empty());
    ASSERT_EQ(run("put --peer " + node.address() + " file '" + path + "'").exit_code, 0);
    ASSERT_EQ(run("exists --peer " + node.address() + " file").exit_code, 0);
    // Its admission is to take everything: three blocks of 1 MiB.
    int records = 0;
    for (int tries = 0; tries < 2400 && records < 3; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
      const json seen = json::parse(run("inspect --json '" + disk + "'", "").text, nullptr, false);
      if (seen.is_object()) records = seen.value("records", 0);
    }
    EXPECT_EQ(records, 3);
    node.end(SIGKILL);
  }
  NodeProcess again(folder_.path(), {"--disk", "256MiB", "--disk-path", disk});
  ASSERT_FALSE(again.address().empty());
  const std::string back = folder_.path() + "/back";
  const Ran got = run("get --peer " + again.address() + " file -o '" + back + "'");
  ASSERT_EQ(got.exit_code, 0) << got.text;
  EXPECT_EQ(read_file(back), read_file(path));
}

TEST_F(NodeCommand, a_frozen_node_costs_a_call_its_timeout_and_serves_again_afterwards) {
  NodeProcess node(folder_.path(), {});
  ASSERT_FALSE(node.address().empty());
  const std::string path = make("file", 10'000);
  ASSERT_EQ(run("put --peer " + node.address() + " file '" + path + "'").exit_code, 0);
  node.send(SIGSTOP);
  const Ran frozen = run("get --peer " + node.address() + " --timeout 0.3 file");
  EXPECT_EQ(frozen.exit_code, 1);
  EXPECT_TRUE(contains(frozen.text, "no node answers")) << frozen.text;
  EXPECT_TRUE(contains(frozen.text, node.address())) << frozen.text;
  node.send(SIGCONT);
  const std::string back = folder_.path() + "/back";
  EXPECT_EQ(run("get --peer " + node.address() + " file -o '" + back + "'").exit_code, 0);
  EXPECT_EQ(read_file(back), read_file(path));
}

// The command fails at once: a node that refuses the sender does so again.
TEST_F(NodeCommand, a_block_that_is_changed_on_its_way_is_said_to_be_and_got_by_the_next_call) {
  const std::string key = kvbm::test::write_key_file(folder_.path() + "/key");
  NodeProcess node(folder_.path(), {"--key-file", key});
  ASSERT_FALSE(node.address().empty());
  kvbm::test::PathAttacker path(node.address());
  const std::string with_key = " --key-file '" + key + "' --local off ";
  const std::string file = make("file", 100'000);
  ASSERT_EQ(run("put --peer " + node.address() + with_key + "file '" + file + "'").exit_code, 0);
  path.strike({kvbm::test::Attack::payload, true, true, 0});
  const std::string back = folder_.path() + "/back";
  const std::string get = "get --peer " + path.address() + with_key + "file -o '" + back + "'";
  const Ran changed = run(get);
  EXPECT_EQ(path.struck(), 1U);
  EXPECT_EQ(changed.exit_code, 1) << changed.text;
  EXPECT_TRUE(contains(changed.text, "changed on its way")) << changed.text;
  EXPECT_FALSE(std::filesystem::exists(back));
  const Ran again = run(get);
  EXPECT_EQ(again.exit_code, 0) << again.text;
  EXPECT_EQ(read_file(back), read_file(file));
}

TEST_F(NodeCommand, who_is_not_of_the_pool_is_told_why) {
  const std::string key = folder_.path() + "/key";
  const std::string other = folder_.path() + "/other";
  kvbm::test::write_key_file(key);
  kvbm::test::write_key_file(other, kvbm::test::kOtherPoolKey);
  NodeProcess node(folder_.path(), {"--key-file", key, "--pool", "p"});
  ASSERT_FALSE(node.address().empty());
  const std::string path = make("file", 100);
  const std::string member = " --pool p --key-file '" + key + "' ";
  const std::string file = " file '" + path + "'";
  // The limit is an hour. A command that waits it out is stopped with another exit code.
  const auto ask = [&node](const std::string& call, const std::string& arguments) {
    return run(call + " --timeout 3600 --peer " + node.address() + arguments, " 2>&1", "timeout 120");
  };
  EXPECT_EQ(ask("put", member + file).exit_code, 0);
  for (const std::string call : {"put", "get", "exists", "peers"}) {
    const std::string name = call == "put" ? file : call == "peers" ? "" : " file";
    const Ran keyless = ask(call, " --pool p" + name);
    const Ran wrong = ask(call, " --pool p --key-file '" + other + "'" + name);
    const Ran stranger = ask(call, " --pool q --key-file '" + key + "'" + name);
    EXPECT_TRUE(contains(keyless.text, "one side has a key and the other has none")) << keyless.text;
    EXPECT_TRUE(contains(wrong.text, "wrong key")) << wrong.text;
    EXPECT_TRUE(contains(stranger.text, "another pool")) << stranger.text;
    for (const Ran& ran : {keyless, wrong, stranger}) {
      EXPECT_EQ(ran.exit_code, 1) << call << ": " << ran.text;
      EXPECT_TRUE(contains(ran.text, "no node lets this one in")) << ran.text;
      EXPECT_TRUE(contains(ran.text, node.address())) << ran.text;
      // The node is running and has said what is wrong, so starting one is no remedy.
      EXPECT_FALSE(contains(ran.text, "start one with `kvbm node")) << ran.text;
    }
  }
  const Ran layout = ask("put", member + "--block-bytes 4MiB large '" + make("large", 5'000'000) + "'");
  EXPECT_EQ(layout.exit_code, 1) << layout.text;
  EXPECT_TRUE(contains(layout.text, "--block-bytes")) << layout.text;
  EXPECT_TRUE(contains(run("exists --timeout 0.3 --peer 127.0.0.1:1 file").text, "start one with `kvbm node"));
}

TEST_F(NodeCommand, what_cannot_be_used_is_named_with_what_to_do) {
  const std::string members = folder_.path() + "/members";
  std::ofstream(members) << "node one 127.0.0.1:1\nbad\n";
  const Ran listed = run("put --peers-file '" + members + "' file '" + make("file", 10) + "'");
  EXPECT_EQ(listed.exit_code, 2) << listed.text;
  EXPECT_TRUE(contains(listed.text, members) && contains(listed.text, "mend that line")) << listed.text;
  const Ran keyed = run("exists --peer 127.0.0.1:1 --key-file '" + folder_.path() + "/none' file");
  EXPECT_TRUE(contains(keyed.text, "No such file or directory")) << keyed.text;
  const Ran unnamed = run("put --peer 127.0.0.1:1 --timeout 1 '' '" + members + "'");
  EXPECT_TRUE(contains(unnamed.text, "a name is empty")) << unnamed.text;
}

// No node listens yet. The command waits, because one may start.
TEST_F(NodeCommand, a_node_that_starts_late_is_waited_for) {
  std::string address;
  {
    NodeProcess early(folder_.path(), {});
    address = early.address();
  }
  ASSERT_FALSE(address.empty());
  const std::string path = make("file", 100);
  Ran put;
  std::thread asker([&] { put = run("put --timeout 120 --peer " + address + " file '" + path + "'"); });
  // The port was free a moment ago. The file arrives, whether the node or the command starts first.
  NodeProcess late(folder_.path(), {}, address);
  asker.join();
  EXPECT_EQ(put.exit_code, 0) << put.text;
}

TEST_F(NodeCommand, bad_input_is_refused_with_a_reason_and_a_remedy) {
  const std::pair<const char*, const char*> cases[] = {
      {"node --listen 0.0.0.0:0", "node.key_file"},
      {"node --listen nonsense", "nonsense"},
      {"node --listen nonsense", "HOST:PORT"},
      {"get --peer nosuchhost.invalid:70 name", "nosuchhost.invalid:70"},
      {"get --peer nosuchhost.invalid:70 name", "names of hosts are not looked up"},
      {"node --listen 127.0.0.1:0 --disk 1GiB", "--disk-path"},
      {"node --listen 127.0.0.1:0 --key-file /nonexistent", "/nonexistent"},
      {"put --peer 127.0.0.1:1 --timeout 0.3 name /nonexistent", "no such file: /nonexistent"},
      {"get --peer 127.0.0.1:1 --timeout 0.3 name", "127.0.0.1:1"},
      {"get --peer nonsense name", "nonsense"},
      {"get --peer 10.0.0.1:7000 --timeout 0.3 name", "node.key_file"},
      {"node --listen ''", "give --listen 127.0.0.1:7000, --peers, --peers-file or --share DIR"},
      {"node --listen 127.0.0.1:0 --host 0", "--host 0 leaves no memory for blocks"},
      {"peers", "--peer"},
      {"peers --share /nonexistent", "a shared tier set has no peers"},
      {"put --share /nonexistent --peer 127.0.0.1:1 name", "two places"},
      {"get --share /nonexistent --peers-file /nonexistent name", "two places"},
  };
  for (const auto& [command, expected] : cases) {
    const Ran ran = run(command);
    EXPECT_NE(ran.exit_code, 0) << command;
    EXPECT_TRUE(contains(ran.text, expected)) << command << ": " << ran.text;
  }
}

TEST_F(NodeCommand, a_directory_is_not_stored_as_an_empty_file) {
  NodeProcess node(folder_.path(), {});
  ASSERT_FALSE(node.address().empty());
  const Ran directory = run("put --peer " + node.address() + " d '" + folder_.path() + "'");
  EXPECT_EQ(directory.exit_code, 2) << directory.text;
  EXPECT_TRUE(contains(directory.text, folder_.path()) && contains(directory.text, "is a directory")) << directory.text;
  EXPECT_EQ(run("exists --peer " + node.address() + " d").exit_code, 1);
  const Ran empty = run("put --peer " + node.address() + " e '" + make("empty", 0) + "'");
  EXPECT_EQ(empty.exit_code, 0) << empty.text;
}

TEST_F(NodeCommand, a_shared_directory_that_is_not_there_is_made_by_put_and_by_nobody_else) {
  const std::string misspelt = folder_.path() + "/nodir";
  for (const char* command : {"get", "exists", "locate"}) {
    const Ran ran = run(std::string(command) + " --share '" + misspelt + "' --disk 64MiB --host 8MiB file");
    EXPECT_EQ(ran.exit_code, 2) << command << ": " << ran.text;
    EXPECT_TRUE(contains(ran.text, "no such directory: " + misspelt)) << command << ": " << ran.text;
    EXPECT_NE(::access(misspelt.c_str(), F_OK), 0) << command;
  }
  const Ran put = run("put --share '" + misspelt + "' --disk 64MiB --host 8MiB file '" + make("file", 5000) + "'");
  ASSERT_EQ(put.exit_code, 0) << put.text;
  const Ran there = run("exists --share '" + misspelt + "' --disk 64MiB --host 8MiB file");
  EXPECT_EQ(there.exit_code, 0) << there.text;
}

TEST_F(NodeCommand, an_address_in_use_is_named) {
  NodeProcess node(folder_.path(), {});
  ASSERT_FALSE(node.address().empty());
  const Ran second = run("node --host 8MiB --listen " + node.address());
  EXPECT_NE(second.exit_code, 0);
  EXPECT_TRUE(contains(second.text, node.address())) << second.text;
}

}  // namespace
}  // namespace node_command_test
