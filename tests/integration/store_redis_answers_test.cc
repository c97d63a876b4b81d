// The store for Redis before servers that misbehave and on a system that refuses threads.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>

#include "support/scripted_redis.h"
#include "support/seccomp.h"
#include "support/store_module.h"

namespace store_redis_answers_test {
namespace {

using kvbm::test::ScriptedRedis;
using kvbm::test::StoreModule;
using kvbm::test::usual;

class RedisAnswersTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef KVBM_REDIS_MODULE
    GTEST_SKIP() << "the store for Redis was not built: libssl-dev is missing";
#else
    ::unsetenv("KVBM_REDIS_PASSWORD");
#endif
  }
  static std::unique_ptr<StoreModule> load() {
#ifdef KVBM_REDIS_MODULE
    return std::make_unique<StoreModule>(KVBM_REDIS_MODULE);
#else
    return nullptr;
#endif
  }
};

// A cluster of servers that get new addresses again and again, for instance in Kubernetes.
TEST_F(RedisAnswersTest, follows_a_cluster_through_ever_new_addresses) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 4096) GTEST_SKIP() << "the system allows this process " << files.rlim_max << " files, not 4,096";
  files.rlim_cur = std::max<rlim_t>(files.rlim_cur, 4096);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  std::atomic<unsigned> number{0};
  std::atomic<bool> moves{false};
  std::atomic<int> port{0};
  ScriptedRedis server([&](std::string& asked) {
    const auto words = ScriptedRedis::take(asked);
    if (words.empty()) return std::string();
    if (words[0] != "GETRANGE" || !moves.exchange(false)) return usual(words);
    // 127.0.0.1, written in another way each time.
    const unsigned n = number;
    return "-MOVED 1 127.0" + std::string(n % 11, '0') + ".0" + std::string(n / 11 % 11, '0') + "." +
           std::string(n / 121, '0') + "1:" + std::to_string(port) + "\r\n";
  });
  port = server.port();
  const auto module = load();
  ASSERT_EQ(module->open({"redis", server.address(), "", {{"connections", "1"}}, "", ""}), KVBM_OK)
      << module->message();
  for (number = 0; number < 1200; ++number) {
    moves = true;
    std::string got;
    const auto get = module->get("a", &got, 4, 0, 60);
    ASSERT_EQ(get.status, KVBM_OK) << number << ": " << get.message;
    ASSERT_FALSE(moves) << "it was sent on";
    ASSERT_EQ(got, "kvbm");
  }
}

TEST_F(RedisAnswersTest, takes_an_address_that_is_named_twice_once) {
  const auto module = load();
  ASSERT_EQ(module->open({"redis", "127.0.0.1:1,127.0.0.1:1", "", {}, "", ""}), KVBM_OK) << module->message();
  EXPECT_EQ(std::string(module->facts().description), "redis://127.0.0.1:1/0?prefix=kvbm");
  for (int i = 0; i < 5; ++i) {
    std::string got;
    EXPECT_NE(module->get("a", &got, 4, 0, 5).status, KVBM_OK);
  }
}

// In a process of its own, because the system refuses it threads from then on.
TEST_F(RedisAnswersTest, lives_where_the_system_refuses_a_thread_for_a_name) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto module = load();
    if (module->open({"redis", "localhost:1", "", {}, "", ""}) != KVBM_OK) ::_exit(1);
    if (!kvbm::test::refuse_calls({SYS_clone, SYS_clone3}, EAGAIN)) ::_exit(77);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < until) {
      std::string got;
      const auto get = module->get("a", &got, 4, 0, 5);
      if (get.status == KVBM_OK) ::_exit(2);
      if (get.message.find("no thread to look it up") != std::string::npos) ::_exit(0);
    }
    ::_exit(3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "the system allows no seccomp filter";
  EXPECT_TRUE(WIFEXITED(status)) << "it was ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace store_redis_answers_test
