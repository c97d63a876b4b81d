// Replays over a real S3 server, a real Redis and a real Valkey that are killed, frozen, slowed, filled up and hidden
// meanwhile: nothing wrong, nothing fails, and what is there afterwards is found.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "support/faulty_proxy.h"
#include "support/redis_server.h"
#include "support/run_command.h"
#include "support/s3_server.h"
#include "support/scripted_http.h"
#include "support/temp_dir.h"

namespace store_outage_test {
namespace {

using kvbm::test::Ran;
using kvbm::test::RedisServer;
using kvbm::test::run;
using kvbm::test::S3Server;

double number(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\": ");
  return at == std::string::npos ? -1 : std::strtod(json.c_str() + at + name.size() + 4, nullptr);
}

constexpr const char* kPace = "&timeout=500ms&linger=5ms";

// Replays over a server; a fixture for each kind of server says where it is and how much is in it.
class Outage : public ::testing::Test {
 protected:
  void prepare(const std::string& address) {
    address_ = address;
    ASSERT_EQ(run("trace generate --requests 120 --seed 3 -o " + trace()).exit_code, 0);
  }
  [[nodiscard]] virtual std::string url(const std::string& address) const = 0;
  [[nodiscard]] virtual size_t objects() const = 0;

  [[nodiscard]] std::string trace() const { return dir_.path() + "/trace.jsonl"; }
  [[nodiscard]] std::string replay() const {
    return "replay " + trace() + " --host 16MiB --block-bytes 16KiB --verify --json --settle --store '" +
           url(address_) + "'";
  }
  // Runs a replay while `meddle` does something with the server, and checks what it says.
  template <class Meddle>
  void beside(const Meddle& meddle) {
    const std::string out = dir_.path() + "/out.json";
    const pid_t pid = fork();
    if (pid == 0) {
      const int file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(file, 1);
      ::execl("/bin/sh", "sh", "-c", (environment_ + " exec '" KVBM_COMMAND "' " + replay()).c_str(), nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 1000 && objects() < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    meddle();
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    std::ifstream in(out);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(number(text, "wrong_blocks"), 0) << text;
    EXPECT_EQ(number(text, "requests"), 120) << text;
  }
  // Starts a run, and returns how many blocks of earlier runs it found.
  double found_again() {
    const Ran ran = run(replay(), "", environment_);
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    EXPECT_EQ(number(ran.text, "wrong_blocks"), 0) << ran.text;
    return number(ran.text, "found_again");
  }
  // Expects that the store works again: the first run stores the missing blocks, and the second one finds them.
  void is_in_use_again() {
    (void)found_again();
    EXPECT_GT(found_again(), 100);
  }
  void finds_nothing_wrong_without_a_server() {
    const Ran ran = run(replay(), "", environment_);
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
    EXPECT_EQ(number(ran.text, "wrong_blocks"), 0) << ran.text;
    EXPECT_GT(number(ran.text, "hits"), 100) << ran.text;
  }

  void through_proxy() {
    server_address_ = address_;
    proxy_ = std::make_unique<kvbm::test::FaultyProxy>(server_address_, 1);
    ASSERT_FALSE(proxy_->address().empty());
    address_ = proxy_->address();
  }
  // 1 Mbit/s is less than the replay needs. Blocks that do not arrive in time are computed.
  void slow_for_a_while() {
    through_proxy();
    beside([this] {
      proxy_->slow(125'000);
      std::this_thread::sleep_for(std::chrono::seconds(3));
      proxy_->slow(0);
    });
    is_in_use_again();
  }
  // Answers like a load balancer in front of a server that is down.
  void answer_503_and_html_for_a_while() {
    through_proxy();
    kvbm::test::ScriptedHttp balancer([](const kvbm::test::HttpRequest&) {
      kvbm::test::HttpAnswer answer;
      answer.status = 503;
      answer.headers = {{"Content-Type", "text/html"}};
      answer.body = "<html><body><h1>503 Service Unavailable</h1></body></html>";
      return answer;
    });
    beside([&] {
      proxy_->retarget(balancer.url().substr(std::string("http://").size()));
      const uint64_t before = proxy_->connections();
      proxy_->set(kvbm::test::Fault::cut, 1);  // open connections still lead to the server
      for (int i = 0; i < 1000 && proxy_->connections() == before; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      proxy_->set(kvbm::test::Fault::none, 0);
      std::this_thread::sleep_for(std::chrono::seconds(2));
      EXPECT_GT(proxy_->connections(), before);
      proxy_->retarget(server_address_);
    });
    is_in_use_again();
  }

  std::string address_;
  std::string server_address_;
  std::unique_ptr<kvbm::test::FaultyProxy> proxy_;
  kvbm::test::TempDir dir_;
  std::string environment_;
};

class StoreOutage : public Outage {
 protected:
  void SetUp() override {
    if (S3Server::program().empty()) GTEST_SKIP() << "versitygw is not here: tools/setup --stores installs it";
    ASSERT_TRUE(server_.start()) << server_.log();
    environment_ = "AWS_ACCESS_KEY_ID=" + S3Server::access_key() + " AWS_SECRET_ACCESS_KEY=" + S3Server::secret();
    prepare(server_.endpoint().substr(std::string("http://").size()));
  }
  [[nodiscard]] std::string url(const std::string& address) const override {
    return "s3://" + S3Server::bucket() + "/kv?endpoint=http://" + address + "&region=" + S3Server::region() + kPace;
  }
  [[nodiscard]] size_t objects() const override {
    size_t files = 0;
    std::error_code ignored;
    for (const auto& each : std::filesystem::recursive_directory_iterator(server_.data(), ignored)) {
      files += each.is_regular_file(ignored) ? 1 : 0;
    }
    return files;
  }

  S3Server server_;
};

class RedisOutage : public Outage, public ::testing::WithParamInterface<RedisServer::Kind> {
 protected:
  void SetUp() override {
    if (const std::string why = RedisServer::missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
    RedisServer::choose(GetParam());
    ASSERT_TRUE(server_.start()) << server_.log();
    prepare(server_.address());
  }
  [[nodiscard]] std::string url(const std::string& address) const override {
    return "redis://" + address + "/0?prefix=kv" + kPace;
  }
  [[nodiscard]] size_t objects() const override {
    const std::string answer = server_.ask({"DBSIZE"});
    return answer.starts_with(":") ? std::strtoul(answer.c_str() + 1, nullptr, 10) : 0;
  }

  RedisServer server_;
};

TEST_F(StoreOutage, killed_and_brought_back_with_its_data) {
  beside([&] {
    server_.kill();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ASSERT_TRUE(server_.start_again(true)) << server_.log();
  });
  is_in_use_again();
}

TEST_F(StoreOutage, killed_and_brought_back_empty) {
  beside([&] {
    server_.kill();
    ASSERT_TRUE(server_.start_again(false)) << server_.log();
  });
  is_in_use_again();
}

TEST_F(StoreOutage, frozen_for_a_while) {
  beside([&] {
    server_.freeze();
    std::this_thread::sleep_for(std::chrono::seconds(3));
    server_.thaw();
  });
  is_in_use_again();
}

TEST_F(StoreOutage, slowed_to_1_mbit_a_second_for_a_while) { slow_for_a_while(); }

TEST_F(StoreOutage, a_proxy_answers_503_and_html_for_a_while) { answer_503_and_html_for_a_while(); }

TEST_F(StoreOutage, down_from_the_beginning) {
  server_.kill();
  finds_nothing_wrong_without_a_server();
}

TEST_F(StoreOutage, wrong_credentials_are_told_at_once) {
  const Ran ran =
      run(replay(), " 2>&1", "AWS_ACCESS_KEY_ID=" + S3Server::access_key() + " AWS_SECRET_ACCESS_KEY=wrong");
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_TRUE(kvbm::test::contains(ran.text, "a store cannot be used")) << ran.text;
}

TEST_P(RedisOutage, killed_and_brought_back_with_what_it_saved) {
  beside([&] {
    ASSERT_TRUE(server_.save());
    server_.kill();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ASSERT_TRUE(server_.start_again(true)) << server_.log();
  });
  is_in_use_again();
}

TEST_P(RedisOutage, killed_and_brought_back_empty) {
  beside([&] {
    server_.kill();
    ASSERT_TRUE(server_.start_again(false)) << server_.log();
  });
  is_in_use_again();
}

TEST_P(RedisOutage, frozen_for_a_while) {
  beside([&] {
    server_.freeze();
    std::this_thread::sleep_for(std::chrono::seconds(3));
    server_.thaw();
  });
  is_in_use_again();
}

TEST_P(RedisOutage, filled_up_and_made_room_in) {
  beside([&] {
    ASSERT_TRUE(server_.ask({"CONFIG", "SET", "maxmemory", "1mb"}).starts_with("+OK"));
    std::this_thread::sleep_for(std::chrono::seconds(2));
    ASSERT_TRUE(server_.ask({"CONFIG", "SET", "maxmemory", "0"}).starts_with("+OK"));
  });
  is_in_use_again();
}

TEST_P(RedisOutage, slowed_to_1_mbit_a_second_for_a_while) { slow_for_a_while(); }

// Another program answers at the address.
TEST_P(RedisOutage, a_proxy_answers_503_and_html_for_a_while) { answer_503_and_html_for_a_while(); }

TEST_P(RedisOutage, down_from_the_beginning) {
  server_.kill();
  finds_nothing_wrong_without_a_server();
}

INSTANTIATE_TEST_SUITE_P(Servers, RedisOutage, ::testing::Values(RedisServer::Kind::redis, RedisServer::Kind::valkey),
                         [](const auto& one) { return RedisServer::name_of(one.param); });

}  // namespace
}  // namespace store_outage_test
