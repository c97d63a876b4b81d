// Replays over a real S3 server that is killed, frozen and restarted meanwhile: nothing wrong, nothing fails, and what is
// there afterwards is found.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "support/run_command.h"
#include "support/s3_server.h"
#include "support/temp_dir.h"

namespace store_outage_test {
namespace {

using kvbm::test::Ran;
using kvbm::test::run;
using kvbm::test::S3Server;

double number(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\": ");
  return at == std::string::npos ? -1 : std::strtod(json.c_str() + at + name.size() + 4, nullptr);
}

class StoreOutage : public ::testing::Test {
 protected:
  void SetUp() override {
    if (S3Server::program().empty()) GTEST_SKIP() << "versitygw is not here: tools/setup --stores installs it";
    ASSERT_TRUE(server_.start()) << server_.log();
    ASSERT_EQ(run("trace generate --requests 120 --seed 3 -o " + trace()).exit_code, 0);
    environment_ = "AWS_ACCESS_KEY_ID=" + S3Server::access_key() + " AWS_SECRET_ACCESS_KEY=" + S3Server::secret();
  }
  [[nodiscard]] std::string trace() const { return dir_.path() + "/trace.jsonl"; }
  [[nodiscard]] std::string replay() const {
    return "replay " + trace() + " --host 16MiB --block-bytes 16KiB --verify --json --settle --store 's3://" + S3Server::bucket() +
           "/kv?endpoint=" + server_.endpoint() + "&region=" + S3Server::region() + "&timeout=500ms&linger=5ms'";
  }
  // Runs a replay while `meddle` does something with the server, and checks what it says.
  template <class Meddle>
  std::string beside(const Meddle& meddle) {
    const std::string out = dir_.path() + "/out.json";
    const pid_t pid = fork();
    if (pid == 0) {
      const int file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(file, 1);
      ::execl("/bin/sh", "sh", "-c", (environment_ + " exec '" KVBM_COMMAND "' " + replay()).c_str(), nullptr);
      ::_exit(127);
    }
    wait_for_objects(3);
    meddle();
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    std::ifstream in(out);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(number(text, "wrong_blocks"), 0) << text;
    EXPECT_EQ(number(text, "requests"), 120) << text;
    return text;
  }
  void wait_for_objects(size_t n) const {
    for (int i = 0; i < 1000; ++i) {
      size_t files = 0;
      std::error_code ignored;
      for (const auto& each : std::filesystem::recursive_directory_iterator(server_.data(), ignored)) {
        files += each.is_regular_file(ignored) ? 1 : 0;
      }
      if (files >= n) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  // What a run that begins now finds of others.
  double found_again() {
    const Ran ran = run(replay(), "", environment_);
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    EXPECT_EQ(number(ran.text, "wrong_blocks"), 0) << ran.text;
    return number(ran.text, "found_again");
  }

  S3Server server_;
  kvbm::test::TempDir dir_;
  std::string environment_;
};

TEST_F(StoreOutage, killed_and_brought_back_with_its_data) {
  beside([&] {
    server_.kill();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ASSERT_TRUE(server_.start_again(true)) << server_.log();
  });
  (void)found_again();  // what was stored while the server was away is not there
  EXPECT_GT(found_again(), 100);
}

TEST_F(StoreOutage, killed_and_brought_back_empty) {
  beside([&] {
    server_.kill();
    ASSERT_TRUE(server_.start_again(false)) << server_.log();
  });
  (void)found_again();
  EXPECT_GT(found_again(), 100);
}

TEST_F(StoreOutage, frozen_for_a_while) {
  beside([&] {
    server_.freeze();
    std::this_thread::sleep_for(std::chrono::seconds(3));
    server_.thaw();
  });
  (void)found_again();
  EXPECT_GT(found_again(), 100);
}

TEST_F(StoreOutage, down_from_the_beginning) {
  server_.kill();
  const Ran ran = run(replay(), "", environment_);
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_EQ(number(ran.text, "wrong_blocks"), 0) << ran.text;
  EXPECT_GT(number(ran.text, "hits"), 100) << ran.text;
}

TEST_F(StoreOutage, wrong_credentials_are_told_at_once) {
  const Ran ran = run(replay(), " 2>&1", "AWS_ACCESS_KEY_ID=" + S3Server::access_key() + " AWS_SECRET_ACCESS_KEY=wrong");
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_TRUE(kvbm::test::contains(ran.text, "a store cannot be used")) << ran.text;
}

}  // namespace
}  // namespace store_outage_test
