// `kvbm key new`: a key of full entropy, printed or in a new file that is its user's alone, and taken by a node.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cluster/admission/pool_key.h"
#include "support/pool_member.h"
#include "support/run_command.h"
#include "support/temp_dir.h"

namespace key_command_test {
namespace {

using kvbm::cluster::parse_pool_key;
using kvbm::test::Ran;
using kvbm::test::run;

bool says(const Ran& ran, const char* part) { return ran.text.find(part) != std::string::npos; }

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(KeyCommand, prints_another_key_each_time) {
  std::set<std::string> keys;
  for (int i = 0; i < 3; ++i) {
    const Ran ran = run("key new");
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    EXPECT_TRUE(parse_pool_key(ran.text).ok()) << ran.text;
    keys.insert(ran.text);
  }
  EXPECT_EQ(keys.size(), 3U);
  const Ran json = run("key new --json");
  EXPECT_TRUE(parse_pool_key(nlohmann::json::parse(json.text).at("key").get<std::string>()).ok()) << json.text;
}

TEST(KeyCommand, writes_a_file_that_is_its_users_alone_and_that_a_node_takes) {
  const kvbm::test::TempDir folder;
  const std::string path = folder.path() + "/pool.key";
  const mode_t before = ::umask(0);
  const Ran ran = run("key new '" + path + "'");
  ::umask(before);
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_TRUE(says(ran, "node.key_file")) << ran.text;
  EXPECT_FALSE(says(ran, "kvbm-pool-key-1:")) << "the key is printed";
  struct stat facts {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600U);
  kvbm::test::MemberSetup setup;
  setup.name = "node";
  setup.key_file = path;
  EXPECT_NE(kvbm::test::PoolMember::open(setup), nullptr);
}

TEST(KeyCommand, never_replaces_what_is_there) {
  const kvbm::test::TempDir folder;
  const std::string path = folder.path() + "/pool.key";
  ASSERT_EQ(run("key new '" + path + "'").exit_code, 0);
  const std::string first = contents(path);
  const std::string link = folder.path() + "/link";
  ASSERT_EQ(::symlink((folder.path() + "/elsewhere").c_str(), link.c_str()), 0);
  for (const std::string& there : {path, link, folder.path()}) {
    const Ran again = run("key new '" + there + "'");
    EXPECT_EQ(again.exit_code, 2) << again.text;
    EXPECT_TRUE(says(again, "exists")) << again.text;
  }
  EXPECT_EQ(contents(path), first);
  EXPECT_NE(::access((folder.path() + "/elsewhere").c_str(), F_OK), 0);
  const Ran nowhere = run("key new '" + folder.path() + "/no/where'");
  EXPECT_EQ(nowhere.exit_code, 1) << nowhere.text;
  EXPECT_TRUE(says(nowhere, "No such file")) << nowhere.text;
}

TEST(KeyCommand, says_when_it_could_not_be_written) {
  const Ran full = run("key new", " > /dev/full 2>&1");
  EXPECT_EQ(full.exit_code, 1);
}

}  // namespace
}  // namespace key_command_test
