// kvbm watch as a user runs it, against a ZeroMQ publisher in this process: both encodings, replay, gaps, malformed
// messages, and the errors for bad input.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/run_command.h"
#include "watch/zmq_library.h"

namespace watch_command_test {
namespace {

using nlohmann::json;

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;
using kvbm::watch::Socket;
using kvbm::watch::SocketKind;
using kvbm::watch::Zmq;

std::string packed(const json& value) {
  const std::vector<uint8_t> bytes = json::to_msgpack(value);
  return {bytes.begin(), bytes.end()};
}

std::string frame_of(uint64_t sequence) {
  std::string frame(8, '\0');
  for (size_t i = 0; i < 8; ++i) frame[i] = static_cast<char>(sequence >> (56 - 8 * i) & 0xff);
  return frame;
}

// Publishes a message every few milliseconds until the publisher is destroyed. Of each ten numbers one is not
// published, but kept for replay, and another is malformed.
class Engine {
 public:
  explicit Engine(Zmq& zmq) {
    auto pub = zmq.socket(SocketKind::pub, -1, 1000);
    auto router = zmq.socket(SocketKind::router, -1, 100000);
    if (!pub.ok() || !router.ok()) return;
    pub_ = std::move(pub).value();
    router_ = std::move(router).value();
    if (!pub_->bind("tcp://127.0.0.1:*").ok() || !router_->bind("tcp://127.0.0.1:*").ok()) return;
    thread_ = std::thread([this] { work(); });
  }
  ~Engine() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] bool works() const { return thread_.joinable(); }
  [[nodiscard]] std::string endpoint() const { return pub_->endpoint(); }
  [[nodiscard]] std::string replay() const { return router_->endpoint(); }

  static constexpr uint64_t kWithheld = 5;
  static constexpr uint64_t kMalformed = 7;

 private:
  static std::string payload(uint64_t sequence) {
    if (sequence % 10 == kMalformed) return "\x93";
    const uint64_t hash = 1000 + sequence;
    if (sequence % 2 == 0) {  // as vLLM from 0.25 on
      return packed({1.0,
                     {{{"type", "BlockStored"}, {"block_hashes", {hash}}, {"token_ids", {1, 2}}, {"medium", "GPU"}},
                      {{"type", "NotYetKnown"}}},
                     nullptr});
    }
    return packed(
        {1.0, {{"BlockStored", {hash}, nullptr, {1, 2}, 2, nullptr, "CPU"}, {"BlockRemoved", {hash}, "CPU"}}});
  }

  void work() {
    for (uint64_t sequence = 0; !stop_; ++sequence) {
      const std::string message[3] = {"kv@test@model", frame_of(sequence), payload(sequence)};
      if (sequence % 10 != kWithheld) (void)pub_->send(message);
      const auto asked = router_->wait(3, -1);
      if (asked.ok() && asked.value()) answer(sequence);
    }
  }

  void answer(uint64_t until) {
    const auto request = router_->receive();
    if (!request.ok() || request.value().size() != 3 || request.value()[2].size() != 8) return;
    uint64_t first = 0;
    for (const char byte : request.value()[2]) first = first << 8 | static_cast<uint8_t>(byte);
    for (uint64_t sequence = first; sequence <= until; ++sequence) {
      const std::string reply[5] = {request.value()[0], "", "kv@test@model", frame_of(sequence), payload(sequence)};
      (void)router_->send(reply);
    }
    const std::string end[5] = {request.value()[0], "", "", std::string(8, '\xff'), ""};
    (void)router_->send(end);
  }

  std::unique_ptr<Socket> pub_;
  std::unique_ptr<Socket> router_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// `kvbm watch` in a child; the test reads its output while it runs.
class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments) {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      std::vector<char*> argv{const_cast<char*>("kvbm"), const_cast<char*>("watch")};
      for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
      argv.push_back(nullptr);
      ::execv(KVBM_COMMAND, argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    out_ = ::fdopen(ends[0], "r");
  }
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (out_ != nullptr) ::fclose(out_);
    ::free(line_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Returns false at the end of the output.
  bool next_line(std::string& line) {
    const ssize_t n = ::getline(&line_, &room_, out_);
    if (n > 0) line.assign(line_, static_cast<size_t>(n));
    return n > 0;
  }
  void interrupt() const { ::kill(pid_, SIGINT); }
  int exit_code() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  FILE* out_ = nullptr;
  char* line_ = nullptr;
  size_t room_ = 0;
};

class WatchCommand : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ZeroMQ: the thread sanitizer sees the threads of the system's libzmq and not its locks";
#endif
    auto loaded = Zmq::load();
    if (!loaded.ok()) GTEST_SKIP() << "ZeroMQ: " << loaded.status().message() << " (apt install libzmq3-dev)";
    zmq_ = std::move(loaded).value();
  }
  void refused(const std::string& arguments, const char* message) {
    const Ran ran = run("watch " + arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments << "\n" << ran.text;
    EXPECT_TRUE(contains(ran.text, message)) << arguments << "\n" << ran.text;
  }
  // Reads lines until `enough` events have arrived, then interrupts the command. Returns all events and the summary.
  static std::vector<json> rows_of(Child& child, size_t enough) {
    std::vector<json> rows;
    std::string line;
    while (child.next_line(line)) {
      rows.push_back(json::parse(line, nullptr, false));
      EXPECT_TRUE(rows.back().is_object()) << line;
      if (rows.size() == enough) child.interrupt();
    }
    return rows;
  }
  std::unique_ptr<Zmq> zmq_;
};

TEST_F(WatchCommand, events_of_both_encodings_are_lines_and_what_was_withheld_is_replayed) {
  Engine engine(*zmq_);
  ASSERT_TRUE(engine.works());
  Child child({engine.endpoint(), "--replay", engine.replay(), "--topic", "kv@", "--json"});
  const std::vector<json> rows = rows_of(child, 200);
  EXPECT_EQ(child.exit_code(), 0);
  ASSERT_GT(rows.size(), 200U);
  std::set<uint64_t> seen;
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    const uint64_t sequence = rows[i]["seq"];
    EXPECT_TRUE(seen.empty() || sequence >= *seen.rbegin()) << "in order";
    seen.insert(sequence);
    EXPECT_NE(rows[i]["type"], "Lost") << rows[i];
    EXPECT_EQ(rows[i]["block_hashes"], (json::array({1000 + sequence}))) << rows[i];
    EXPECT_EQ(rows[i]["medium"], sequence % 2 == 0 ? "GPU" : "CPU");
    EXPECT_TRUE(sequence % 10 != Engine::kWithheld || rows[i].contains("replayed")) << rows[i];
  }
  // All events are there, because the command requested those published before its start.
  for (uint64_t sequence = 0; sequence <= *seen.rbegin(); ++sequence) {
    EXPECT_EQ(seen.contains(sequence), sequence % 10 != Engine::kMalformed) << sequence;
  }
  const json& summary = rows.back();
  EXPECT_EQ(summary["type"], "Summary");
  EXPECT_EQ(summary["lost"], 0);
  EXPECT_GT(summary["malformed"], 0);
  EXPECT_GT(summary["unknown"], 0);
  EXPECT_EQ(summary["gaps"], summary["missed"]);
  EXPECT_EQ(summary["mediums"].size(), 2U);
}

TEST_F(WatchCommand, without_a_replay_endpoint_what_did_not_come_is_lost) {
  Engine engine(*zmq_);
  ASSERT_TRUE(engine.works());
  Child child({engine.endpoint(), "--json"});
  const std::vector<json> rows = rows_of(child, 100);
  EXPECT_EQ(child.exit_code(), 0);
  const json& summary = rows.back();
  EXPECT_GT(summary["lost"], 0);
  EXPECT_EQ(summary["lost"], summary["missed"]);
  size_t lost = 0;
  for (const json& row : rows) lost += row["type"] == "Lost" ? 1U : 0U;
  EXPECT_EQ(lost, summary["gaps"]);
}

TEST_F(WatchCommand, frames_are_tables_and_the_last_is_of_the_whole) {
  Engine engine(*zmq_);
  ASSERT_TRUE(engine.works());
  Child child({engine.endpoint(), "--interval", "0.05"});
  std::string line;
  std::string text;
  while (child.next_line(line)) {
    text += line;
    if (contains(line, "kv@test@model  CPU") && !contains(text, "asked to end")) {
      child.interrupt();
      text += "asked to end";
    }
  }
  EXPECT_EQ(child.exit_code(), 0);
  EXPECT_TRUE(contains(text, "last events")) << text;
  EXPECT_TRUE(contains(text, "messages, ")) << text;
}

TEST_F(WatchCommand, a_topic_that_nobody_publishes_is_said) {
  Engine engine(*zmq_);
  ASSERT_TRUE(engine.works());
  const Ran ran = run("watch " + engine.endpoint() + " --topic other --for 200ms --once");
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_TRUE(contains(ran.text, "no event received from")) << ran.text;
}

TEST_F(WatchCommand, bad_input_is_refused) {
  refused("", "endpoint");
  refused("127.0.0.1:5557", "cannot be connected to");
  refused("tcp://127.0.0.1:5557 --replay nowhere", "cannot be connected to");
  refused("tcp://127.0.0.1:5557 --for soon", "--for is a time");
  refused("tcp://127.0.0.1:5557 --for -3", "");
  refused("tcp://127.0.0.1:5557 --interval 0", "--interval");
}

}  // namespace
}  // namespace watch_command_test
