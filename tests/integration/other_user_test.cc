// Without a key a node serves its own user alone. Other users' processes are refused on both sides of a connection,
// with the remedy. The tests run the `kvbm` command as users of a machine do; another user is a child process with
// another user id.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/other_user.h"
#include "support/pool_keys.h"
#include "support/run_command.h"
#include "support/temp_dir.h"

namespace kvbm::test::other_user_test {
namespace {

// A `kvbm` that runs as `user`, what it says, and its end.
class Command {
 public:
  Command(uid_t user, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "kvbm");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    // Runs the program by a descriptor, because another user may have no access to its folder.
    const int program = open(KVBM_COMMAND, O_RDONLY | O_CLOEXEC);
    int output[2];
    EXPECT_EQ(pipe(output), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(output[1], STDOUT_FILENO);
      dup2(output[1], STDERR_FILENO);
      close(output[0]);
      close(output[1]);
      if (user != geteuid() && !become_another_user(user)) _exit(126);
      fexecve(program, argv.data(), environ);
      _exit(127);
    }
    close(program);
    close(output[1]);
    output_ = output[0];
  }
  ~Command() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(output_);
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  Ran wait() {
    Ran ran;
    char some[4096];
    for (ssize_t n = 0; (n = read(output_, some, sizeof some)) > 0;) ran.text.append(some, static_cast<size_t>(n));
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    if (WIFEXITED(status)) ran.exit_code = WEXITSTATUS(status);
    return ran;
  }
  Ran end() {
    kill(pid_, SIGTERM);
    return wait();
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class OtherUser : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_be_another_user()) GTEST_SKIP() << "only root can become another user";
    ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
    for (const char* name : {"/mine", "/theirs"}) ASSERT_EQ(mkdir((folder_.path() + name).c_str(), 0700), 0);
    ASSERT_EQ(chown((folder_.path() + "/theirs").c_str(), kOtherUser, kOtherUser), 0);
    file_ = make_file("notes", 100'000);
  }
  [[nodiscard]] std::string folder_of(uid_t user) const {
    return folder_.path() + (user == kOtherUser ? "/theirs" : "/mine");
  }
  std::string make_file(const std::string& name, size_t bytes) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << std::string(bytes, 'k');
    return path;
  }
  // Starts a node of that user. Returns its address once it listens.
  std::string start_node(uid_t user, std::vector<std::string> more = {}) {
    const std::string address = folder_of(user) + "/address";
    std::vector<std::string> arguments = {"node",  "--listen",       "127.0.0.1:0", "--host",
                                          "64MiB", "--address-file", address};
    arguments.insert(arguments.end(), more.begin(), more.end());
    node_ = std::make_unique<Command>(user, arguments);
    std::string said;
    for (int tries = 0; tries < 6000 && said.empty(); ++tries) {
      said = read_file(address);
      if (said.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    while (!said.empty() && said.back() == '\n') said.pop_back();
    return said;
  }
  static Ran run_as(uid_t user, const std::vector<std::string>& arguments) { return Command(user, arguments).wait(); }

  TempDir folder_;
  std::string file_;
  std::unique_ptr<Command> node_;
};

TEST_F(OtherUser, a_node_without_a_key_gives_another_user_nothing_and_takes_nothing) {
  const std::string address = start_node(0);
  ASSERT_FALSE(address.empty());
  ASSERT_EQ(run_as(0, {"put", "--peer", address, "notes", file_}).exit_code, 0);
  for (const std::vector<std::string>& call :
       {std::vector<std::string>{"get", "notes", "-o", folder_of(kOtherUser) + "/got"},
        {"put", "others", file_},
        {"exists", "notes"},
        {"peers"},
        {"locate", "notes"}}) {
    std::vector<std::string> all = call;
    all.insert(all.begin() + 1, {"--peer", address, "--timeout", "3600"});
    const Ran ran = run_as(kOtherUser, all);
    EXPECT_EQ(ran.exit_code, 1) << call[0] << ": " << ran.text;
    for (const char* part : {"user 0 there", "user 65534 here", "node.key_file"}) {
      EXPECT_TRUE(contains(ran.text, part)) << call[0] << ": " << part << ": " << ran.text;
    }
  }
  EXPECT_TRUE(read_file(folder_of(kOtherUser) + "/got").empty());
  const std::string back = folder_.path() + "/back";
  EXPECT_EQ(run_as(0, {"get", "--peer", address, "notes", "-o", back}).exit_code, 0);
  EXPECT_EQ(read_file(back), read_file(file_));
  EXPECT_EQ(run_as(0, {"exists", "--peer", address, "others"}).exit_code, 1);
}

// A stranger's process may have taken the port first. The command sends it nothing, even if it runs as root.
TEST_F(OtherUser, a_node_of_another_user_is_not_given_anything) {
  const std::string address = start_node(kOtherUser);
  ASSERT_FALSE(address.empty());
  const Ran put = run_as(0, {"put", "--peer", address, "--timeout", "3600", "notes", file_});
  EXPECT_EQ(put.exit_code, 1) << put.text;
  for (const char* part : {"user 65534 there", "user 0 here", "node.key_file"}) {
    EXPECT_TRUE(contains(put.text, part)) << part << ": " << put.text;
  }
  EXPECT_EQ(run_as(kOtherUser, {"exists", "--peer", address, "notes"}).exit_code, 1);
}

TEST_F(OtherUser, with_the_key_another_user_is_let_in_and_without_it_not) {
  const std::string text = std::string(kOnePoolKey) + "\n";
  for (const uid_t user : {uid_t{0}, kOtherUser}) {
    ASSERT_TRUE(write_own_file(folder_of(user) + "/key", text));
    ASSERT_EQ(chown((folder_of(user) + "/key").c_str(), user, user), 0);
  }
  const std::string address = start_node(0, {"--key-file", folder_of(0) + "/key"});
  ASSERT_FALSE(address.empty());
  const std::string key = folder_of(kOtherUser) + "/key";
  EXPECT_EQ(run_as(kOtherUser, {"put", "--peer", address, "--key-file", key, "notes", file_}).exit_code, 0);
  const Ran keyless = run_as(kOtherUser, {"get", "--peer", address, "--timeout", "3600", "notes"});
  EXPECT_EQ(keyless.exit_code, 1);
  EXPECT_TRUE(contains(keyless.text, "node.key_file")) << keyless.text;
}

TEST_F(OtherUser, a_session_is_not_handed_to_another_user) {
  const std::string address = folder_of(0) + "/receiver";
  Command receiver(0, {"session", "receive", "--listen", "127.0.0.1:0", "--timeout", "600", "--address-file", address,
                       "--layers", "2", "--heads", "2", "--head-size", "16", "--tokens", "64"});
  std::string at;
  for (int tries = 0; tries < 6000 && at.empty(); ++tries) {
    at = read_file(address);
    if (at.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  while (!at.empty() && at.back() == '\n') at.pop_back();
  ASSERT_FALSE(at.empty());
  const Ran sent = run_as(kOtherUser, {"session", "send", "--peer", at, "--timeout", "500", "--layers", "2", "--heads",
                                       "2", "--head-size", "16", "--tokens", "64"});
  EXPECT_EQ(sent.exit_code, 1) << sent.text;
  EXPECT_TRUE(contains(sent.text, "node.key_file") && contains(sent.text, "user 0 there")) << sent.text;
}

TEST_F(OtherUser, a_shared_tier_set_is_another_users_neither_to_join_nor_to_put_files_into) {
  const std::string set = folder_of(0) + "/set";
  ASSERT_EQ(run_as(0, {"put", "--share", set, "--disk", "64MiB", "notes", file_}).exit_code, 0);
  EXPECT_NE(run_as(kOtherUser, {"get", "--share", set, "--disk", "64MiB", "notes"}).exit_code, 0);
  EXPECT_EQ(mode_of(set), 0700U);
  EXPECT_EQ(mode_of(set + "/superblock"), 0600U);
  // The owner is changed between two starts.
  ASSERT_EQ(chown((set + "/superblock").c_str(), kOtherUser, kOtherUser), 0);
  const Ran swapped = run_as(0, {"get", "--share", set, "--disk", "64MiB", "notes"});
  EXPECT_NE(swapped.exit_code, 0);
  EXPECT_TRUE(contains(swapped.text, "superblock") && contains(swapped.text, "chown 0 ")) << swapped.text;
  ASSERT_EQ(chown((set + "/superblock").c_str(), 0, 0), 0);
  ASSERT_EQ(chmod(set.c_str(), 0777), 0);
  const Ran open_to_all = run_as(0, {"get", "--share", set, "--disk", "64MiB", "notes"});
  EXPECT_NE(open_to_all.exit_code, 0);
  EXPECT_TRUE(contains(open_to_all.text, "chmod go-w " + set)) << open_to_all.text;
  ASSERT_EQ(chmod(set.c_str(), 0700), 0);
  const std::string back = folder_.path() + "/back";
  EXPECT_EQ(run_as(0, {"get", "--share", set, "--disk", "64MiB", "notes", "-o", back}).exit_code, 0);
  EXPECT_EQ(read_file(back), read_file(file_));
}

}  // namespace
}  // namespace kvbm::test::other_user_test
