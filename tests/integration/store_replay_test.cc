// Replays over a store: a process finds blocks that another one wrote, whatever happens to the store meanwhile. Also
// tests the messages for bad URLs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "support/run_command.h"
#include "support/temp_dir.h"

namespace store_replay_test {
namespace {

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;

double number(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\": ");
  return at == std::string::npos ? -1 : std::strtod(json.c_str() + at + name.size() + 4, nullptr);
}

class StoreReplay : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run("trace generate --requests 200 --seed 3 -o " + trace()).exit_code, 0); }
  [[nodiscard]] std::string trace() const { return dir_.path() + "/trace.jsonl"; }
  [[nodiscard]] std::string url() const { return "file://" + dir_.path() + "/kv"; }
  [[nodiscard]] std::string replay(const std::string& more) const {
    return "replay " + trace() + " --host 16MiB --block-bytes 16KiB --verify --json --store '" + url() +
           "?linger=2ms&publish=20ms&poll=20ms' " + more;
  }
  void refused(const std::string& arguments, const std::string& message, int exit_code = 2) {
    const Ran ran = run("replay " + trace() + " --host 16MiB " + arguments);
    EXPECT_EQ(ran.exit_code, exit_code) << arguments << "\n" << ran.text;
    EXPECT_TRUE(contains(ran.text, message)) << arguments << "\n" << ran.text;
  }
  // Starts a replay in the background; its output is in `out`.
  [[nodiscard]] pid_t start(const std::string& command, const std::string& out) const {
    const pid_t pid = fork();
    if (pid == 0) {
      const int file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(file, 1);
      ::execl("/bin/sh", "sh", "-c", ("exec '" KVBM_COMMAND "' " + command).c_str(), nullptr);
      ::_exit(127);
    }
    return pid;
  }
  static int ended(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static std::string text_of(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  kvbm::test::TempDir dir_;
};

TEST_F(StoreReplay, a_second_process_finds_what_the_first_one_wrote) {
  const Ran first = run(replay("--settle"), "");
  ASSERT_EQ(first.exit_code, 0) << first.text;
  EXPECT_EQ(number(first.text, "wrong_blocks"), 0);
  EXPECT_EQ(number(first.text, "failed_blocks"), 0);
  const Ran second = run(replay("--settle"), "");
  ASSERT_EQ(second.exit_code, 0) << second.text;
  EXPECT_EQ(number(second.text, "wrong_blocks"), 0);
  EXPECT_GT(number(second.text, "found_again"), 1000) << second.text;
  // All blocks hit, except those that the first replay used for the first time.
  EXPECT_GT(number(second.text, "hits"), number(first.text, "hits") * 1.2);
}

TEST_F(StoreReplay, prompts_are_loaded_in_parts_behind_what_is_read_ahead) {
  ASSERT_EQ(run(replay("--settle"), "").exit_code, 0);
  const Ran parts = run(replay("--load-blocks 3 --settle"), "");
  ASSERT_EQ(parts.exit_code, 0) << parts.text;
  EXPECT_EQ(number(parts.text, "wrong_blocks"), 0);
  EXPECT_EQ(number(parts.text, "failed_blocks"), 0);
  EXPECT_GT(number(parts.text, "found_again"), 1000) << parts.text;
}

TEST_F(StoreReplay, two_processes_at_a_time_share_and_one_is_killed) {
  const std::string out[] = {dir_.path() + "/a.json", dir_.path() + "/b.json"};
  const pid_t a = start(replay("--settle"), out[0]);
  const pid_t b = start(replay("--settle"), out[1]);
  // Waits for the middle of the work: some objects are written, and more will follow.
  const auto written = [&] {
    std::error_code ignored;
    size_t files = 0;
    for (const auto& each : std::filesystem::recursive_directory_iterator(dir_.path() + "/kv", ignored))
      files += each.is_regular_file(ignored) ? 1 : 0;
    return files;
  };
  while (written() < 10 && ::waitpid(a, nullptr, WNOHANG) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(a, SIGKILL);
  ::waitpid(a, nullptr, 0);
  ASSERT_EQ(ended(b), 0);
  const std::string text = text_of(out[1]);
  EXPECT_EQ(number(text, "wrong_blocks"), 0) << text;
  const Ran third = run(replay("--settle"), "");
  ASSERT_EQ(third.exit_code, 0) << third.text;
  EXPECT_EQ(number(third.text, "wrong_blocks"), 0) << third.text;
  EXPECT_GT(number(third.text, "found_again"), 1000) << third.text;
}

// The store is emptied, garbled and truncated while a replay runs.
TEST_F(StoreReplay, a_store_that_is_damaged_in_the_middle_costs_hits_and_nothing_else) {
  ASSERT_EQ(run(replay("--settle"), "").exit_code, 0);
  const std::string out = dir_.path() + "/a.json";
  const pid_t pid = start(replay("--settle"), out);
  size_t n = 0;
  std::error_code ignored;
  for (int round = 0; round < 3; ++round) {
    for (const auto& each : std::filesystem::recursive_directory_iterator(dir_.path() + "/kv/v1/p", ignored)) {
      if (!each.is_regular_file(ignored)) continue;
      switch (n++ % 3) {
        case 0:
          std::filesystem::remove(each.path(), ignored);
          break;
        case 1:
          std::filesystem::resize_file(each.path(), 20'000, ignored);
          break;
        default: {
          std::fstream file(each.path(), std::ios::in | std::ios::out | std::ios::binary);
          file.seekp(5000);
          file.write("something else", 14);
        }
      }
    }
  }
  EXPECT_GT(n, 10U);
  ASSERT_EQ(ended(pid), 0);
  const std::string text = text_of(out);
  EXPECT_EQ(number(text, "wrong_blocks"), 0) << text;
}

TEST_F(StoreReplay, with_a_disk_between_and_coded) {
  const std::string disk = "--disk 64MiB --disk-path " + dir_.path() + "/tier --codec fast ";
  const Ran first = run(replay(disk + "--settle"), "");
  ASSERT_EQ(first.exit_code, 0) << first.text;
  std::filesystem::remove_all(dir_.path() + "/tier");
  const Ran second = run(replay(disk + "--settle"), "");
  ASSERT_EQ(second.exit_code, 0) << second.text;
  EXPECT_EQ(number(second.text, "wrong_blocks"), 0) << second.text;
  EXPECT_GT(number(second.text, "found_again"), 1000) << second.text;
}

TEST_F(StoreReplay, bad_urls_are_told_what_is_wrong) {
  refused("--store nothing", "scheme");
  refused("--store 'ftp://host/x'", "ftp", 1);
  refused("--store '" + url() + "?pool=3'", "pool");
  refused("--store '" + url() + "?pol=3s'", "poll");
  refused("--store '" + url() + "?poll=often'", "poll=often");
  refused("--store '" + url() + "?pack=12'", "pack=12");
  refused("--store '" + url() + "?pack=64MiB'", "inflight");
  refused("--store '" + url() + "?prefetch_ahead=sometimes'", "a size, or off");
  refused("--store '" + url() + "?prefetch_ahead=1KiB'", "prefetch_ahead=1KiB is outside");
  refused("--store '" + url() + "?prefetch_ahead=33MiB'", "lower prefetch_ahead");
  refused("--store '" + url() + "?prefetch_ahed=off'", "prefetch_ahead");
  refused("--store 'file:///proc/version/x'", "/proc/version");
}

}  // namespace
}  // namespace store_replay_test
