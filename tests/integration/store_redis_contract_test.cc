// The store for Redis keeps the rules of kvbm_plugin.h on Redis and on Valkey, and other programs' keys stay.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/redis_server.h"
#include "support/store_contract.h"

namespace kvbm::test::store_redis_contract_test {
namespace {

class RedisContract : public ::testing::TestWithParam<RedisServer::Kind> {
 protected:
  void SetUp() override {
#ifndef KVBM_REDIS_MODULE
    GTEST_SKIP() << "the store for Redis was not built: libssl-dev is missing";
#endif
    if (const std::string why = RedisServer::missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
    RedisServer::choose(GetParam());
  }
  void check_on(const std::string& options) {
    // A cluster takes a moment until it serves its slots.
    for (int i = 0; i < 1000 && server_.ask({"SET", "another", "program's"}) != "+OK\r\n"; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    expect_kept(KVBM_STORES, "redis://" + server_.address() + "/0" + options);
    // Counts keys without an expiry time. Parts of puts that were given up expire by themselves.
    const std::string lasting =
        "local n = 0 for _, k in ipairs(redis.call('keys', '*')) do if redis.call('ttl', k) < 0 then n = n + 1 end end "
        "return n";
    EXPECT_EQ(server_.ask({"EVAL", lasting, "0"}), ":1\r\n");
  }

  RedisServer server_;
};

TEST_P(RedisContract, values) {
  ASSERT_TRUE(server_.start()) << server_.log();
  check_on("");
}

TEST_P(RedisContract, parts_over_one_connection) {
  ASSERT_TRUE(server_.start()) << server_.log();
  check_on("?part=64KiB&connections=1");
}

TEST_P(RedisContract, a_cluster) {
  ASSERT_TRUE(server_.start({"--cluster-enabled", "yes"})) << server_.log();
  server_.ask({"CLUSTER", "ADDSLOTSRANGE", "0", "16383"});
  check_on("?part=64KiB");
}

INSTANTIATE_TEST_SUITE_P(Servers, RedisContract, ::testing::Values(RedisServer::Kind::redis, RedisServer::Kind::valkey),
                         [](const auto& one) { return RedisServer::name_of(one.param); });

}  // namespace
}  // namespace kvbm::test::store_redis_contract_test
