// kvbm top as a user runs it: frames that add up, Ctrl-C on a pipe and on a terminal, and the messages for bad input.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/run_command.h"
#include "support/temp_dir.h"

namespace top_command_test {
namespace {

using nlohmann::json;

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;

std::vector<json> frames_of(const std::string& text) {
  std::vector<json> frames;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    frames.push_back(json::parse(text.substr(at, end - at), nullptr, false));
    EXPECT_TRUE(frames.back().is_object()) << text.substr(at, end - at);
    at = end + 1;
  }
  return frames;
}

// `kvbm top` in a child; the test reads its output while it runs.
class Child {
 public:
  // Starts the command on a terminal of its own, or on a pipe.
  Child(const std::vector<std::string>& arguments, bool terminal, const std::string& temporary) {
    int ends[2] = {-1, -1};
    winsize size{};
    size.ws_row = 40;
    size.ws_col = 120;
    if (!terminal && ::pipe2(ends, O_CLOEXEC) != 0) return;
    pid_ = terminal ? ::forkpty(&out_, nullptr, nullptr, &size) : ::fork();
    if (pid_ == 0) {
      if (!terminal) ::dup2(ends[1], STDOUT_FILENO);
      ::setenv("TERM", "xterm", 1);
      ::setenv("TMPDIR", temporary.c_str(), 1);
      std::vector<char*> argv{const_cast<char*>("kvbm"), const_cast<char*>("top")};
      for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
      argv.push_back(nullptr);
      ::execv(KVBM_COMMAND, argv.data());
      ::_exit(127);
    }
    if (!terminal) {
      out_ = ends[0];
      ::close(ends[1]);
    }
  }
  ~Child() {
    close_output();
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] bool started() const { return pid_ > 0; }
  // Reads until `text` has arrived. Returns false if the output ended before.
  bool read_until(const std::string& text) {
    while (!contains(said_, text)) {
      if (!read_some()) return false;
    }
    return true;
  }
  void signal(int number) const { ::kill(pid_, number); }
  void type(const char* keys) const {
    ASSERT_EQ(::write(out_, keys, std::strlen(keys)), static_cast<ssize_t>(std::strlen(keys)));
  }
  void close_output() {
    if (out_ >= 0) ::close(std::exchange(out_, -1));
  }
  // Returns all output and the exit code; -1 if a signal ended the command.
  Ran finish() {
    while (out_ >= 0 && read_some()) {
    }
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, said_};
  }

 private:
  bool read_some() {
    char buffer[4096];
    const ssize_t n = ::read(out_, buffer, sizeof buffer);
    if (n > 0) said_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }
  pid_t pid_ = -1;
  int out_ = -1;
  std::string said_;
};

class TopCommand : public ::testing::Test {
 protected:
  void make_trace(const char* requests) {
    ASSERT_EQ(run("trace generate --requests " + std::string(requests) + " --seed 3 -o " + trace()).exit_code, 0);
    std::filesystem::create_directory(scratch());
  }
  [[nodiscard]] std::string trace() const { return dir_.path() + "/trace.jsonl"; }
  [[nodiscard]] std::string scratch() const { return dir_.path() + "/scratch"; }
  void refused(const std::string& arguments, const char* message) {
    const Ran ran = run("top " + arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments << "\n" << ran.text;
    EXPECT_TRUE(contains(ran.text, message)) << arguments << "\n" << ran.text;
  }
  kvbm::test::TempDir dir_;
};

TEST_F(TopCommand, frames_add_up) {
  make_trace("300");
  const Ran ran =
      run("top " + trace() + " --host 4MiB --disk 256MiB --block-bytes 16KiB --json --interval 0.01 --rows 7", "");
  ASSERT_EQ(ran.exit_code, 0) << ran.text;
  const std::vector<json> frames = frames_of(ran.text);
  ASSERT_GE(frames.size(), 2U);
  for (size_t i = 0; i < frames.size(); ++i) {
    EXPECT_EQ(frames[i]["frame"], i + 1);
    EXPECT_EQ(frames[i]["last"], i + 1 == frames.size());
    EXPECT_GE(frames[i]["requests"], frames[i == 0 ? 0 : i - 1]["requests"]);
    EXPECT_LE(frames[i]["hottest"].size(), 7U);
  }
  const json& last = frames.back();
  EXPECT_EQ(last["requests"], 300);
  EXPECT_EQ(last["stopped"], false);
  EXPECT_EQ(last["keys_looked_up"], last["block_refs"]);
  uint64_t hits = 0;
  uint64_t misses = 0;
  ASSERT_EQ(last["tiers"].size(), 2U);
  for (const json& tier : last["tiers"]) {
    EXPECT_EQ(tier["scanned"], tier["blocks"]);
    EXPECT_LE(tier["used_bytes"], tier["capacity_bytes"]);
    hits += tier["hits"].get<uint64_t>();
    misses += tier["misses"].get<uint64_t>();
  }
  EXPECT_EQ(last["keys_hit"], hits);
  EXPECT_EQ(last["keys_looked_up"], hits + misses);
  EXPECT_LE(last["scanned_blocks"],
            last["tiers"][0]["blocks"].get<uint64_t>() + last["tiers"][1]["blocks"].get<uint64_t>());
  ASSERT_EQ(last["hottest"].size(), 7U);
  for (size_t i = 1; i < 7; ++i) {
    EXPECT_GE(last["hottest"][i - 1]["uses"], last["hottest"][i]["uses"]);
    EXPECT_LE(last["coldest"][i - 1]["uses"], last["coldest"][i]["uses"]);
  }
  EXPECT_GE(last["hottest"][6]["uses"], last["coldest"][6]["uses"]);
}

TEST_F(TopCommand, the_last_frame_is_what_replay_says) {
  make_trace("300");
  const std::string arguments = trace() + " --host 16MiB --json --first 20 --limit 200";
  const Ran top = run("top --once " + arguments, "");
  const Ran replay = run("replay " + arguments, "");
  ASSERT_EQ(top.exit_code, 0);
  ASSERT_EQ(replay.exit_code, 0);
  const std::vector<json> frames = frames_of(top.text);
  ASSERT_EQ(frames.size(), 1U);
  const json said = json::parse(replay.text, nullptr, false);
  for (const char* name : {"requests", "block_refs", "hits", "hit_rate", "tokens", "tokens_saved"}) {
    EXPECT_EQ(frames[0][name], said[name]) << name;
  }
  for (const char* name : {"blocks", "hits", "stores", "store_bytes", "loads", "load_bytes", "evictions", "damaged"}) {
    EXPECT_EQ(frames[0]["tiers"][0][name], said["tiers"][0][name]) << name;
  }
}

TEST_F(TopCommand, says_how_the_disk_is_coded) {
  make_trace("100");
  const std::string arguments = trace() + " --host 4MiB --disk 64MiB --block-bytes 16KiB --once";
  const Ran fixed = run("top --json --codec zstd " + arguments, "");
  ASSERT_EQ(fixed.exit_code, 0) << fixed.text;
  const json coding = frames_of(fixed.text).back()["tiers"][1]["coding"];
  EXPECT_EQ(coding["setting"], "zstd");
  EXPECT_EQ(coding["sealed"], false);
  EXPECT_GT(coding["coded"].get<uint64_t>() + coding["left_plain"].get<uint64_t>(), 0U);
  EXPECT_EQ(frames_of(fixed.text).back()["tiers"][0]["coding"]["setting"], "off");
  EXPECT_TRUE(contains(run("top --codec auto " + arguments).text, "auto: "));
  const Ran lossy = run("top --codec int8 " + arguments);
  EXPECT_NE(lossy.exit_code, 0) << "a tier loses nothing";
  EXPECT_TRUE(contains(lossy.text, "int8")) << lossy.text;
}

TEST_F(TopCommand, without_a_terminal_frames_follow_each_other_as_text) {
  make_trace("100");
  const Ran ran = run("top " + trace() + " --host 16MiB --once --rows 3 --sort age");
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  for (const char* part : {"100 of 100 requests, done", "tier  blocks", "hottest by age", "coldest by age"}) {
    EXPECT_TRUE(contains(ran.text, part)) << part << "\n" << ran.text;
  }
  EXPECT_FALSE(contains(ran.text, "\033")) << ran.text;
}

TEST_F(TopCommand, an_interrupt_ends_it_with_the_last_frame_and_leaves_no_files) {
  make_trace("6000");
  for (const int number : {SIGINT, SIGTERM}) {
    Child child({trace(), "--host", "16MiB", "--disk", "64MiB", "--json", "--interval", "0.01"}, false, scratch());
    ASSERT_TRUE(child.read_until("\n"));
    child.signal(number);
    const Ran ran = child.finish();
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    const std::vector<json> frames = frames_of(ran.text);
    ASSERT_GE(frames.size(), 2U);
    EXPECT_EQ(frames.back()["last"], true);
    EXPECT_EQ(frames.back()["stopped"], true);
    EXPECT_LT(frames.back()["requests"], 6000);
    EXPECT_EQ(frames.back()["matches"], 0);
    EXPECT_EQ(frames.back()["operations_in_flight"], 0);
    EXPECT_TRUE(std::filesystem::is_empty(scratch()));
  }
}

TEST_F(TopCommand, on_a_terminal_ctrl_c_gives_the_screen_back_and_the_last_frame_stays) {
  make_trace("6000");
  Child child({trace(), "--host", "16MiB", "--interval", "0.01"}, true, scratch());
  if (!child.started()) GTEST_SKIP() << "no pseudo-terminal here";
  ASSERT_TRUE(child.read_until("coldest"));
  child.type("\x03");
  const Ran ran = child.finish();
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  const size_t entered = ran.text.find("\033[?1049h");
  const size_t left = ran.text.find("\033[?1049l");
  ASSERT_NE(entered, std::string::npos);
  ASSERT_NE(left, std::string::npos);
  EXPECT_LT(entered, left);
  EXPECT_EQ(ran.text.find("\033[?1049h", left), std::string::npos);
  EXPECT_TRUE(contains(ran.text.substr(left), "requests, stopped")) << ran.text.substr(left);
}

TEST_F(TopCommand, a_reader_that_goes_away_ends_it) {
  make_trace("6000");
  Child child({trace(), "--host", "16MiB", "--disk", "64MiB", "--json", "--interval", "0.01"}, false, scratch());
  ASSERT_TRUE(child.read_until("\n"));
  child.close_output();
  EXPECT_EQ(child.finish().exit_code, 1);
  EXPECT_TRUE(std::filesystem::is_empty(scratch()));
}

TEST_F(TopCommand, bad_input_is_refused_with_a_reason) {
  make_trace("20");
  refused("", "TRACE is required");
  refused(dir_.path() + "/none", "cannot open the trace");
  refused(trace() + " --interval 0", "--interval");
  refused(trace() + " --rows -1", "--rows");
  refused(trace() + " --sort heat", "uses,age,holds,pins");
  refused(trace() + " --format csv", "one of auto, mooncake");
  refused(trace() + " --host 4KiB", "smaller than one block");
  refused(trace() + " --host 8", "smaller than one block");
  refused(trace() + " --host 8M", "--host");
  refused(trace() + " --threads 0", "--threads is 1 to 64");
  refused(trace() + " --first 20", "it has 20 requests");
  refused(trace() + " --policy nope", "no eviction policy has this name");
  refused(trace() + " --plugin " + trace(), "the plug-in cannot be loaded");
  std::ofstream(trace(), std::ios::app) << "{\"timestamp\": 1}\n";
  refused(trace(), "line 21: ");
  refused(trace(), "hint: --skip-bad goes on after bad lines");
  const Ran skipped = run("top --once --skip-bad " + trace());
  EXPECT_EQ(skipped.exit_code, 0) << skipped.text;
  EXPECT_TRUE(contains(skipped.text, "1 bad lines skipped")) << skipped.text;
}

}  // namespace
}  // namespace top_command_test
