// The store for Redis on Redis and Valkey: what its table promises, and what happens while the server does not answer.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "support/redis_server.h"
#include "support/scripted_redis.h"
#include "support/store_module.h"
#include "support/temp_dir.h"

namespace store_redis_test {
namespace {

using kvbm::test::RedisServer;
using kvbm::test::ScriptedRedis;
using kvbm::test::StoreModule;
using kvbm::test::StoreUrl;
using kvbm::test::usual;
using Started = StoreModule::Started;
using Options = std::vector<std::string>;

std::string bytes_of(size_t n, uint32_t seed) {
  std::string text(n, '\0');
  for (char& c : text) c = static_cast<char>((seed = seed * 1664525U + 1013904223U) >> 24);
  return text;
}

// Waits until the condition holds. The time that this takes is not tested.
bool comes(const std::function<bool()>& holds) {
  for (int i = 0; i < 6000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class RedisStoreTest : public ::testing::TestWithParam<RedisServer::Kind> {
 protected:
  void SetUp() override {
#ifndef KVBM_REDIS_MODULE
    GTEST_SKIP() << "the store for Redis was not built: libssl-dev is missing";
#else
    if (const std::string why = RedisServer::missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
    RedisServer::choose(GetParam());
    ::unsetenv("KVBM_REDIS_PASSWORD");
    module_ = std::make_unique<StoreModule>(KVBM_REDIS_MODULE);
    ASSERT_NE(module_->table(), nullptr);
#endif
  }
  void serve(const Options& options = {}) { ASSERT_TRUE(server_.start(options)) << server_.log(); }
  [[nodiscard]] StoreUrl url(std::map<std::string, std::string> options = {}) const {
    return {"redis", server_.address(), "/0", std::move(options), "", ""};
  }
  void open(std::map<std::string, std::string> options = {}) {
    ASSERT_EQ(module_->open(url(std::move(options))), KVBM_OK) << module_->message();
  }
  void serve_and_open() {
    serve();
    if (!HasFatalFailure()) open();
  }
  kvbm_status_t refused(const StoreUrl& wrong, const std::string& text) {
    const kvbm_status_t status = module_->open(wrong);
    EXPECT_NE(module_->message().find(text), std::string::npos) << module_->message();
    EXPECT_EQ(module_->message().find("secret"), std::string::npos) << module_->message();
    EXPECT_LT(module_->message().size(), 255U);
    return status;
  }
  bool logged(const std::string& text) {
    const auto lines = module_->log();
    return std::any_of(lines.begin(), lines.end(),
                       [&](const auto& line) { return line.find(text) != std::string::npos; });
  }

  RedisServer server_;
  std::unique_ptr<StoreModule> module_;
};

TEST_P(RedisStoreTest, gives_back_what_was_put_whole_and_in_ranges) {
  serve_and_open();
  EXPECT_EQ(std::string(module_->facts().description), "redis://" + server_.address() + "/0?prefix=kvbm");
  for (const size_t size : {size_t{100}, size_t{4097}, (size_t{4} << 20) + 17}) {
    const std::string data = bytes_of(size, 1);
    ASSERT_EQ(module_->put("a/pack-1.kv", data).status, KVBM_OK);
    std::string got;
    EXPECT_EQ(module_->get("a/pack-1.kv", &got, data.size()).status, KVBM_OK);
    EXPECT_TRUE(got == data);
    EXPECT_EQ(module_->get("a/pack-1.kv", &got, 40, 30).status, KVBM_OK);
    EXPECT_EQ(got, data.substr(30, 40));
    // Ranges beyond the end, at the end, and behind it.
    EXPECT_EQ(module_->get("a/pack-1.kv", &got, 100, data.size() - 7).status, KVBM_OK);
    EXPECT_EQ(got, data.substr(data.size() - 7));
    for (const uint64_t offset : {uint64_t{data.size()}, uint64_t{data.size() + 1}, uint64_t{1} << 40, ~uint64_t{0}}) {
      const auto done = module_->get("a/pack-1.kv", &got, 100, offset);
      EXPECT_EQ(done.status, KVBM_OK) << done.message;
      EXPECT_EQ(done.bytes, 0U);
    }
    // The buffer is larger than the object.
    EXPECT_EQ(module_->get("a/pack-1.kv", &got, data.size() + 1000).status, KVBM_OK);
    EXPECT_TRUE(got == data);
    // A read of no bytes tests whether the object exists.
    EXPECT_EQ(module_->get("a/pack-1.kv", &got, 0).status, KVBM_OK);
    EXPECT_EQ(module_->get("a/pack-2.kv", &got, 0).status, KVBM_ERR_MISS);
    EXPECT_EQ(module_->get("a/pack-2.kv", &got, 10).status, KVBM_ERR_MISS);
  }
}

TEST_P(RedisStoreTest, replaces_removes_and_keeps_empty_objects) {
  serve_and_open();
  std::string got;
  ASSERT_EQ(module_->put("one", "first").status, KVBM_OK);
  // The server answers before it has received all of a large value.
  for (int i = 0; i < 20; ++i) ASSERT_EQ(module_->put("one", std::string(4 << 20, 'x')).status, KVBM_OK);
  ASSERT_EQ(module_->put("one", "second, which is longer").status, KVBM_OK);
  EXPECT_EQ(module_->get("one", &got, 100).status, KVBM_OK);
  EXPECT_EQ(got, "second, which is longer");
  EXPECT_EQ(module_->remove("one").status, KVBM_OK);
  EXPECT_EQ(module_->get("one", &got, 100).status, KVBM_ERR_MISS);
  EXPECT_EQ(module_->remove("one").status, KVBM_OK);
  EXPECT_TRUE(module_->list("").names.empty());
  ASSERT_EQ(module_->put("none", "").status, KVBM_OK);
  const auto done = module_->get("none", &got, 100);
  EXPECT_EQ(done.status, KVBM_OK) << done.message;
  EXPECT_EQ(done.bytes, 0U);
  EXPECT_EQ(module_->get("none", &got, 0).status, KVBM_OK);
  for (const char* name : {"", "/a", "a//b", "a/", "../a", ".a", "A", "a b", "a/.b"}) {
    EXPECT_EQ(module_->put(name, "x").status, KVBM_ERR_CONFIG) << name;
  }
  EXPECT_EQ(module_->put(std::string(KVBM_STORE_NAME_BYTES, 'a'), "x").status, KVBM_OK);
  EXPECT_EQ(module_->put(std::string(KVBM_STORE_NAME_BYTES + 1, 'a'), "x").status, KVBM_ERR_CONFIG);
}

TEST_P(RedisStoreTest, lists_more_than_a_thousand_names_in_order) {
  serve_and_open();
  std::set<std::string> names;
  std::vector<std::unique_ptr<Started>> puts;
  char byte = 'x';
  for (int i = 0; i < 2200; ++i) {
    const std::string name = "i/" + std::to_string(i % 7) +
                             (i % 2 == 0   ? "-"
                              : i % 3 == 0 ? "."
                                           : "") +
                             "n/" + std::to_string(i);
    names.insert(name);
    puts.push_back(module_->start(KVBM_STORE_PUT, name, &byte, 1, 0, 60));
  }
  for (auto& put : puts) ASSERT_EQ(module_->wait(*put).status, KVBM_OK) << put->op.message;
  ASSERT_EQ(module_->put("j/other", "x").status, KVBM_OK);
  // Names that other programs put into the set.
  server_.ask({"ZADD", "kvbm:#names", "0", "i/0-n/0 of others", "0", "i//x"});
  const std::vector<std::string> sorted(names.begin(), names.end());
  for (const size_t room : {size_t{KVBM_STORE_LIST_BYTES}, size_t{1 << 20}}) {
    const auto all = module_->list_all("i/", room);
    ASSERT_EQ(all.status, KVBM_OK) << all.message;
    EXPECT_EQ(all.names, sorted);
    EXPECT_FALSE(all.more);
  }
  EXPECT_EQ(module_->list_all("").names.size(), names.size() + 1);
  EXPECT_TRUE(module_->list("k/").names.empty());
  const auto behind = module_->list("i/", sorted[600], 1 << 20);
  ASSERT_FALSE(behind.names.empty());
  EXPECT_EQ(behind.names.front(), sorted[601]);
  EXPECT_EQ(module_->list("i/", "a/before").names.front(), sorted[0]);
  EXPECT_TRUE(module_->list("i/", "z").names.empty());
}

TEST_P(RedisStoreTest, keeps_large_objects_in_parts) {
  serve();
  open({{"part", "64KiB"}});
  EXPECT_EQ(module_->facts().max_object_bytes, uint64_t{64 << 20});
  const std::string data = bytes_of((1 << 20) + 123, 5);
  ASSERT_EQ(module_->put("large", data).status, KVBM_OK);
  std::string got;
  ASSERT_EQ(module_->get("large", &got, data.size() + 5).status, KVBM_OK);
  EXPECT_TRUE(got == data);
  ASSERT_EQ(module_->get("large", &got, 200'000, 65'530).status, KVBM_OK);
  EXPECT_TRUE(got == data.substr(65'530, 200'000));
  ASSERT_EQ(module_->get("large", &got, 100, data.size() - 3).status, KVBM_OK);
  EXPECT_EQ(got, data.substr(data.size() - 3));
  EXPECT_EQ(module_->get("large", &got, 100, data.size()).bytes, 0U);
  EXPECT_EQ(module_->get("large", &got, 0).status, KVBM_OK);
  // The object, 17 parts and the set of names.
  EXPECT_EQ(server_.ask({"DBSIZE"}), ":19\r\n");
  ASSERT_EQ(module_->remove("large").status, KVBM_OK);
  EXPECT_EQ(server_.ask({"DBSIZE"}), ":0\r\n");
  EXPECT_EQ(module_->get("large", &got, 10).status, KVBM_ERR_MISS);
  // The expiry time holds for the parts as well. When a part has expired, the object is gone.
  module_->expire_s = 300;
  ASSERT_EQ(module_->put("large", data).status, KVBM_OK);
  ASSERT_EQ(module_->put("small", "x").status, KVBM_OK);
  EXPECT_EQ(server_.ask({"TTL", "kvbm:small"}), ":300\r\n");
  const std::string evicting =
      "for _, k in ipairs(redis.call('keys', 'kvbm:#*')) do if redis.call('type', k).ok == 'string' then "
      "if redis.call('ttl', k) < 300 then return 'no time' end if k:match(':3$') then redis.call('del', k) end end end "
      "return 'done'";
  EXPECT_EQ(server_.ask({"EVAL", evicting, "0"}), "$4\r\ndone\r\n");
  EXPECT_EQ(module_->get("large", &got, data.size()).status, KVBM_ERR_MISS);
  EXPECT_EQ(module_->get("large", &got, 1000).status, KVBM_OK);
  module_->expire_s = ~uint64_t{0};
  ASSERT_EQ(module_->put("large", data).status, KVBM_OK);
  ASSERT_EQ(module_->put("small", "x").status, KVBM_OK);
  EXPECT_EQ(module_->get("large", &got, data.size()).status, KVBM_OK);
  char little[4];
  EXPECT_EQ(module_->wait(*module_->start(KVBM_STORE_LIST, "", little, sizeof little)).status, KVBM_ERR_CONFIG);
  // Whatever kind the old object had, a get returns the object that was put last.
  module_->expire_s = 0;
  ASSERT_EQ(module_->put("small", data).status, KVBM_OK);
  ASSERT_EQ(module_->get("small", &got, data.size()).status, KVBM_OK);
  EXPECT_TRUE(got == data);
  ASSERT_EQ(module_->put("large", "now small").status, KVBM_OK);
  ASSERT_EQ(module_->get("large", &got, data.size()).status, KVBM_OK);
  EXPECT_EQ(got, "now small");
  ASSERT_EQ(module_->put("small", data).status, KVBM_OK);
  ASSERT_EQ(module_->remove("small").status, KVBM_OK);
  ASSERT_EQ(module_->remove("large").status, KVBM_OK);
  EXPECT_EQ(server_.ask({"KEYS", "*"}), "*0\r\n");
  EXPECT_EQ(module_->put("too-large", std::string((64 << 20) + 1, 'x')).status, KVBM_ERR_CONFIG);
}

TEST_P(RedisStoreTest, takes_names_off_the_listing_whose_objects_are_gone) {
  serve_and_open();
  ASSERT_EQ(module_->put("v1/i/a", "1").status, KVBM_OK);
  ASSERT_EQ(module_->put("v1/i/b", "2").status, KVBM_OK);
  server_.ask({"DEL", "kvbm:v1/i/a"});
  EXPECT_EQ(module_->list("v1/i/").names.size(), 2U);
  std::string got;
  EXPECT_EQ(module_->get("v1/i/a", &got, 10).status, KVBM_ERR_MISS);
  EXPECT_TRUE(comes([&] { return module_->list("v1/i/").names == std::vector<std::string>{"v1/i/b"}; }));
}

TEST_P(RedisStoreTest, works_where_unlink_is_not_known) {
  serve({"--rename-command", "UNLINK", ""});
  open({{"part", "64KiB"}});
  ASSERT_EQ(module_->put("large", bytes_of(1 << 20, 1)).status, KVBM_OK);
  const auto done = module_->remove("large");
  EXPECT_EQ(done.status, KVBM_OK) << done.message;
  EXPECT_EQ(server_.ask({"DBSIZE"}), ":0\r\n");
}

TEST_P(RedisStoreTest, refuses_urls_that_are_wrong_with_a_remedy) {
  serve();
  const std::vector<std::pair<std::string, std::string>> wrong_options = {
      {"connections", "0"}, {"connections", "65"}, {"part", "1KiB"},   {"part", "1GiB"},
      {"part", "many"},     {"cluster", "maybe"},  {"prefix", "a{b}"}, {"prefix", ""},
      {"ca", "/x"},         {"verify", "off"},     {"database", "1"}};
  for (const auto& [name, value] : wrong_options)
    EXPECT_EQ(refused(url({{name, value}}), name), KVBM_ERR_CONFIG) << name;
  StoreUrl wrong = url();
  for (const char* authority : {"", ":6379", "host:0", "host:66000", "a:b:c", "[::1", "[::1]x", "a b"}) {
    wrong.authority = authority;
    EXPECT_EQ(refused(wrong, "host:port"), KVBM_ERR_CONFIG) << authority;
  }
  wrong = url();
  wrong.path = "/cache";
  EXPECT_EQ(refused(wrong, "prefix="), KVBM_ERR_CONFIG);
  wrong.path = "/999";
  EXPECT_EQ(refused(wrong, "no database of this number"), KVBM_ERR_CONFIG);
  wrong = url();
  wrong.user = "someone";
  EXPECT_EQ(refused(wrong, "KVBM_REDIS_PASSWORD"), KVBM_ERR_CONFIG);
  wrong = url({{"cluster", "on"}});
  EXPECT_EQ(refused(wrong, "no cluster"), KVBM_ERR_CONFIG);
}

TEST_P(RedisStoreTest, tells_who_may_not) {
  serve({"--requirepass", "the-secret"});
  StoreUrl there = url();
  EXPECT_EQ(refused(there, "KVBM_REDIS_PASSWORD"), KVBM_ERR_PERMISSION);
  there.password = "a-wrong-secret";
  EXPECT_EQ(refused(there, "wrong user or password"), KVBM_ERR_PERMISSION);
  there.password = "the-secret";
  EXPECT_EQ(module_->open(there), KVBM_OK) << module_->message();
  ::setenv("KVBM_REDIS_PASSWORD", "the-secret", 1);
  EXPECT_EQ(module_->open(url()), KVBM_OK) << module_->message();
  ::unsetenv("KVBM_REDIS_PASSWORD");
  server_.password = "the-secret";
  there.user = "reader";
  there.password = "reader-secret";
  EXPECT_EQ(refused(there, "wrong user or password"), KVBM_ERR_PERMISSION);
  server_.ask({"ACL", "SETUSER", "reader", "on", ">reader-secret", "~kvbm:*", "+@read", "+ping"});
  EXPECT_EQ(refused(there, "lacks permission"), KVBM_ERR_PERMISSION);
  server_.ask({"ACL",      "SETUSER", "reader",  "~kvbm:*", "+set",   "+setex",      "+getrange",
               "+strlen",  "+exists", "+multi",  "+exec",   "+rpush", "+lrange",     "+expire",
               "+persist", "+del",    "+unlink", "+zadd",   "+zrem",  "+zrangebylex"});
  ASSERT_EQ(module_->open(there), KVBM_OK) << module_->message();
  there.options["prefix"] = "other";
  StoreModule second(KVBM_REDIS_MODULE);
  EXPECT_EQ(second.open(there), KVBM_ERR_PERMISSION) << second.message();
  // Permissions listed in docs/stores-redis.md are sufficient.
  there.options = {{"part", "64KiB"}};
  ASSERT_EQ(module_->open(there), KVBM_OK) << module_->message();
  std::string got;
  for (const uint64_t expire_s : {0, 100}) {
    module_->expire_s = expire_s;
    const auto put = module_->put("a", bytes_of(200'000, 1));
    EXPECT_EQ(put.status, KVBM_OK) << put.message;
    EXPECT_EQ(module_->put("b", "1").status, KVBM_OK);
    EXPECT_EQ(module_->get("a", &got, 100).status, KVBM_OK);
    EXPECT_EQ(module_->get("c", &got, 100).status, KVBM_ERR_MISS);
    EXPECT_EQ(module_->list("").names.size(), 2U);
    const auto removed = module_->remove("a");
    EXPECT_EQ(removed.status, KVBM_OK) << removed.message;
  }
  // Revokes a permission while the store is in use.
  server_.ask({"ACL", "SETUSER", "reader", "-getrange"});
  const auto done = module_->get("b", &got, 10);
  EXPECT_EQ(done.status, KVBM_ERR_PERMISSION);
  EXPECT_NE(done.message.find("lacks permission"), std::string::npos) << done.message;
}

TEST_P(RedisStoreTest, refuses_other_programs) {
  const std::vector<std::pair<std::string, std::string>> others = {
      {"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html>", "HTTP server"},
      {"ERROR\r\n", "not Redis"},
      {std::string("\x15\x03\x03\0\2\2\x32", 7), "rediss://"},
      {std::string(5000, '$'), "not Redis"},
      {std::string("\0\0\0\0", 4), "not Redis"}};
  for (const auto& [answer, text] : others) {
    ScriptedRedis other([answer = answer](std::string& asked) { return asked.clear(), answer; });
    StoreUrl there = {"redis", other.address(), "", {}, "", "a-secret"};
    EXPECT_EQ(refused(there, text), KVBM_ERR_UNSUPPORTED) << answer;
    module_->close();
  }
}

// A password must not come back in a message, whatever the server repeats.
TEST_P(RedisStoreTest, tells_no_secrets_of_servers_without_auth) {
  ScriptedRedis other([](std::string& asked) {
    const auto words = ScriptedRedis::take(asked);
    if (words.empty()) return std::string();
    return words[0] == "AUTH" ? "-ERR unknown command `AUTH`, with args beginning with: `a-secret`, \r\n"
                              : usual(words);
  });
  EXPECT_EQ(refused({"redis", other.address(), "", {}, "", "a-secret"}, "lacks a command"), KVBM_ERR_CONFIG);
}

TEST_P(RedisStoreTest, believes_no_answer_that_was_not_asked_for) {
  std::string answer;
  std::mutex mutex;
  ScriptedRedis other([&](std::string& asked) {
    const auto words = ScriptedRedis::take(asked);
    if (words.empty()) return std::string();
    const std::lock_guard<std::mutex> lock(mutex);
    return words[0] == "CLIENT" || words[0] == "PING" || answer.empty() ? usual(words) : answer;
  });
  ASSERT_EQ(module_->open({"redis", other.address(), "", {{"connections", "1"}}, "", ""}), KVBM_OK)
      << module_->message();
  const std::string huge = "$1000000\r\n" + std::string(100'000, 'x');
  std::string deep;
  for (int i = 0; i < 50; ++i) deep += "*1\r\n";
  for (const std::string& lie :
       {huge, deep, std::string("$-2\r\n"), std::string("$99999999999999999999\r\n"), std::string("*2147483647\r\n"),
        std::string("*1000\r\n") + deep, std::string(":12x\r\n"), std::string("$3\r\nabcd\r\n"),
        std::string("-") + std::string(10'000, 'e'), std::string("+OK\n"), std::string("hang up"),
        std::string("-MOVED 99999 127.0.0.1:1\r\n"), std::string("-MOVED 1\r\n"), std::string("-ASK 1 :0\r\n"),
        std::string("+OK\r\n"), std::string("$-1\r\n"), std::string(":5\r\n"), std::string("*0\r\n"),
        std::string("*1\r\n$1\r\nx\r\n")}) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      answer = lie;
    }
    std::string got;
    const auto get = module_->get("a", &got, 100, 0, 5);
    EXPECT_TRUE(get.status == KVBM_ERR_IO || get.status == KVBM_ERR_DEADLINE || get.status == KVBM_ERR_CONFIG ||
                get.status == KVBM_ERR_MISS)
        << lie.substr(0, 40) << ": " << get.status;
    EXPECT_LT(get.message.size(), 128U);
    const auto list = module_->list("", "", KVBM_STORE_LIST_BYTES, 5);
    EXPECT_LE(list.bytes, size_t{KVBM_STORE_LIST_BYTES});
    module_->remove("a", 5);
    {
      const std::lock_guard<std::mutex> lock(mutex);
      answer.clear();
    }
    EXPECT_TRUE(comes([&] { return module_->get("a", &got, 100).status == KVBM_OK; })) << lie.substr(0, 40);
    EXPECT_EQ(got, "kvbm");
  }
}

// An answer that comes after its operation was given up goes nowhere, and the next one is not mistaken for it.
TEST_P(RedisStoreTest, drops_answers_that_come_late) {
  std::mutex mutex;
  std::condition_variable changed;
  bool holds = false;
  bool is_asked = false;
  ScriptedRedis other([&](std::string& asked) {
    const auto words = ScriptedRedis::take(asked);
    if (words.empty()) return std::string();
    if (words[0] != "GETRANGE" || !words[1].ends_with(":late")) return usual(words);
    std::unique_lock<std::mutex> lock(mutex);
    is_asked = true;
    changed.notify_all();
    changed.wait(lock, [&] { return !holds; });
    return "$100000\r\n" + std::string(100'000, 'l') + "\r\n";
  });
  ASSERT_EQ(module_->open({"redis", other.address(), "", {{"connections", "1"}}, "", ""}), KVBM_OK)
      << module_->message();
  holds = true;
  auto room = std::make_unique<std::string>(100'000, '\0');
  auto late = module_->start(KVBM_STORE_GET, "late", room->data(), room->size(), 0, 600);
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return is_asked; });
  }
  module_->cancel(*late);
  EXPECT_NE(module_->wait(*late).status, KVBM_OK);
  EXPECT_EQ(*room, std::string(100'000, '\0'));
  room.reset();
  std::string got(100, '\0');
  auto next = module_->start(KVBM_STORE_GET, "next", got.data(), got.size(), 0, 60);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    holds = false;
  }
  changed.notify_all();
  const auto done = module_->wait(*next);
  EXPECT_EQ(done.status, KVBM_OK) << done.message;
  EXPECT_EQ(got.substr(0, done.bytes), "kvbm");
  EXPECT_EQ(late->times, 1);
}

TEST_P(RedisStoreTest, names_a_replica) {
  serve_and_open();
  RedisServer replica;
  ASSERT_TRUE(replica.start({"--replicaof", "127.0.0.1 " + std::to_string(server_.port())}));
  StoreUrl there = url();
  there.authority = replica.address();
  ASSERT_TRUE(comes([&] {
    return replica.ask({"INFO", "replication"}).find("master_link_status:up") != std::string::npos;
  }));
  StoreModule second(KVBM_REDIS_MODULE);
  EXPECT_EQ(second.open(there), KVBM_ERR_CONFIG);
  EXPECT_NE(second.message().find("replica: give the address of its master"), std::string::npos) << second.message();
  // With both addresses the master is found, also after they have changed their roles.
  there.authority = replica.address() + "," + server_.address();
  ASSERT_EQ(second.open(there), KVBM_OK) << second.message();
  EXPECT_EQ(second.put("a", "1").status, KVBM_OK);
  replica.ask({"REPLICAOF", "NO", "ONE"});
  server_.ask({"REPLICAOF", "127.0.0.1", std::to_string(replica.port())});
  EXPECT_EQ(second.put("b", "2").status, KVBM_OK);
  EXPECT_EQ(replica.ask({"EXISTS", "kvbm:b"}), ":1\r\n");
  const auto alone = module_->put("c", "3");
  EXPECT_TRUE(alone.status == KVBM_ERR_CONFIG || alone.status == KVBM_ERR_AGAIN) << alone.message;
}

TEST_P(RedisStoreTest, goes_on_after_the_server_was_killed) {
  serve_and_open();
  const std::string data = bytes_of(1 << 20, 3);
  ASSERT_EQ(module_->put("kept", data).status, KVBM_OK);
  ASSERT_TRUE(server_.save());
  server_.kill();
  std::string got;
  const auto gone = module_->get("kept", &got, data.size());
  EXPECT_EQ(gone.status, KVBM_ERR_IO);
  EXPECT_NE(gone.message.find("cannot connect"), std::string::npos) << gone.message;
  // The store is opened while no server answers, and works once one does.
  StoreModule second(KVBM_REDIS_MODULE);
  EXPECT_EQ(second.open(url()), KVBM_OK) << second.message();
  ASSERT_TRUE(server_.start_again(true)) << server_.log();
  for (StoreModule* one : {module_.get(), &second}) {
    EXPECT_TRUE(comes([&] { return one->get("kept", &got, data.size()).status == KVBM_OK; }));
    EXPECT_TRUE(got == data);
    EXPECT_EQ(one->list("").names.size(), 1U);
  }
  ASSERT_TRUE(server_.start_again(false)) << server_.log();
  EXPECT_TRUE(comes([&] { return module_->get("kept", &got, data.size()).status == KVBM_ERR_MISS; }));
  EXPECT_EQ(module_->put("kept", data).status, KVBM_OK);
}

TEST_P(RedisStoreTest, waits_for_a_server_that_loads) {
  serve_and_open();
  server_.ask({"EVAL", "for i = 1, 4000 do redis.call('set', 'x' .. i, 'y') end", "0"});
  ASSERT_EQ(module_->put("kept", "1").status, KVBM_OK);
  ASSERT_TRUE(server_.save());
  ASSERT_TRUE(
      server_.start_again(true, {"--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024"}, false));
  std::string got;
  bool was_loading = false;
  EXPECT_TRUE(comes([&] {
    const auto done = module_->get("kept", &got, 10);
    was_loading |= done.status == KVBM_ERR_AGAIN && done.message.find("loading") != std::string::npos;
    EXPECT_NE(done.status, KVBM_ERR_MISS);
    return done.status == KVBM_OK;
  }));
  EXPECT_TRUE(was_loading);
}

TEST_P(RedisStoreTest, keeps_deadlines_while_the_server_is_frozen) {
  serve_and_open();
  ASSERT_EQ(module_->put("a", "1").status, KVBM_OK);
  server_.freeze();
  {
    std::vector<std::unique_ptr<Started>> many;
    // Frees the memory as soon as the operations have finished: a sanitizer detects later accesses.
    std::string data = bytes_of(8 << 20, 2);
    std::vector<std::string> rooms(40, std::string(1024, '\0'));
    for (size_t i = 0; i < rooms.size(); ++i) {
      many.push_back(i % 2 == 0
                         ? module_->start(KVBM_STORE_PUT, "p" + std::to_string(i), data.data(), data.size(), 0, 0.5)
                         : module_->start(KVBM_STORE_GET, "a", rooms[i].data(), rooms[i].size(), 0, 0.5));
    }
    for (auto& one : many) {
      const auto done = module_->wait(*one);
      EXPECT_EQ(done.status, KVBM_ERR_DEADLINE) << done.message;
      EXPECT_LT(done.seconds, 1.5);
      EXPECT_EQ(one->times, 1);
    }
    // An operation that is cancelled while it waits ends at once.
    for (const uint32_t kind : {KVBM_STORE_GET, KVBM_STORE_PUT}) {
      auto given_up = module_->start(kind, "a2", data.data(), data.size(), 0, 600);
      module_->cancel(*given_up);
      EXPECT_LT(module_->wait(*given_up).seconds, 5);
    }
  }
  const auto began = std::chrono::steady_clock::now();
  StoreModule second(KVBM_REDIS_MODULE);
  EXPECT_EQ(second.open(url(), 300'000'000), KVBM_OK) << second.message();
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), 2);
  second.close();
  server_.thaw();
  std::string got;
  EXPECT_TRUE(comes([&] { return module_->get("a", &got, 10).status == KVBM_OK; }));
  EXPECT_EQ(got, "1");
}

TEST_P(RedisStoreTest, says_that_the_server_is_full) {
  serve({"--maxmemory", "16mb", "--maxmemory-policy", "noeviction"});
  open();
  EXPECT_TRUE(logged("evicts nothing"));
  const std::string data = bytes_of(1 << 20, 3);
  StoreModule::Done done;
  int stored = 0;
  for (; stored < 64; ++stored) {
    done = module_->put("p" + std::to_string(stored), data);
    if (done.status != KVBM_OK) break;
  }
  EXPECT_EQ(done.status, KVBM_ERR_DISK_FULL);
  EXPECT_NE(done.message.find("maxmemory"), std::string::npos) << done.message;
  std::string got;
  EXPECT_EQ(module_->get("p0", &got, 100).status, KVBM_OK);
  EXPECT_EQ(module_->list("").names.size(), static_cast<size_t>(stored));
  // A store can be opened while the server is full.
  EXPECT_EQ(module_->open(url()), KVBM_OK) << module_->message();
  EXPECT_EQ(module_->remove("p0").status, KVBM_OK);
}

TEST_P(RedisStoreTest, takes_evictions_as_misses) {
  serve({"--maxmemory", "16mb", "--maxmemory-policy", "allkeys-lru"});
  open();
  const std::string data = bytes_of(1 << 20, 3);
  size_t misses = 0;
  size_t hits = 0;
  for (int i = 0; i < 64; ++i) {
    const auto done = module_->put("p" + std::to_string(i), data);
    ASSERT_EQ(done.status, KVBM_OK) << done.message;
  }
  std::string got;
  for (int i = 0; i < 64; ++i) {
    const auto done = module_->get("p" + std::to_string(i), &got, data.size());
    misses += done.status == KVBM_ERR_MISS ? 1 : 0;
    hits += done.status == KVBM_OK && got == data ? 1 : 0;
  }
  EXPECT_EQ(misses + hits, 64U);
  EXPECT_GE(misses, 48U);
  EXPECT_GE(hits, 1U);
}

// Three masters that share the slots.
class RedisClusterTest : public RedisStoreTest {
 protected:
  void SetUp() override {
    RedisStoreTest::SetUp();
    if (IsSkipped()) return;
    for (RedisServer& node : nodes_) {
      ASSERT_TRUE(node.start({"--cluster-enabled", "yes", "--cluster-node-timeout", "3000"})) << node.log();
    }
    for (int i = 0; i < 3; ++i) {
      nodes_[i].ask(
          {"CLUSTER", "ADDSLOTSRANGE", std::to_string(i * 5461), std::to_string(i == 2 ? 16383 : i * 5461 + 5460)});
      nodes_[i].ask({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
    }
    for (int i = 1; i < 3; ++i) nodes_[i].ask({"CLUSTER", "MEET", "127.0.0.1", std::to_string(nodes_[0].port())});
    for (RedisServer& node : nodes_) {
      ASSERT_TRUE(comes([&] {
        const std::string info = node.ask({"CLUSTER", "INFO"});
        return info.find("cluster_state:ok") != std::string::npos &&
               info.find("cluster_known_nodes:3") != std::string::npos;
      }));
    }
  }
  [[nodiscard]] StoreUrl cluster_url(std::map<std::string, std::string> options = {}) const {
    return {"redis", nodes_[0].address(), "", std::move(options), "", ""};
  }
  std::string id(int i) {
    const std::string answer = nodes_[i].ask({"CLUSTER", "MYID"});
    return answer.size() > 45 ? answer.substr(5, 40) : "";
  }
  // Returns the server that has the slot of a key; sets the slot.
  int owner(const std::string& key, std::string* slot) {
    *slot = nodes_[0].ask({"CLUSTER", "KEYSLOT", key}).substr(1);
    slot->resize(slot->find('\r'));
    for (int i = 0; i < 3; ++i) {
      if (!nodes_[i].ask({"EXISTS", key}).starts_with("-MOVED")) return i;
    }
    return -1;
  }

  RedisServer nodes_[3];
};

TEST_P(RedisClusterTest, spreads_objects_and_follows_slots_that_move) {
  ASSERT_EQ(module_->open(cluster_url({{"part", "64KiB"}})), KVBM_OK) << module_->message();
  EXPECT_TRUE(logged("is a cluster"));
  const std::string data = bytes_of(200'000, 4);
  std::string got;
  for (int i = 0; i < 60; ++i)
    ASSERT_EQ(module_->put("p/" + std::to_string(i), i % 10 == 0 ? data : std::to_string(i)).status, KVBM_OK);
  EXPECT_EQ(module_->list_all("p/").names.size(), 60U);
  for (RedisServer& node : nodes_) EXPECT_NE(node.ask({"DBSIZE"}), ":0\r\n");
  // Moves an object's slot while it is read and written: first both servers have it, then only the new one.
  std::string slot;
  const std::string key = "kvbm:p/7";
  const int from = owner(key, &slot);
  ASSERT_GE(from, 0);
  const int to = (from + 1) % 3;
  const auto works = [&] {
    EXPECT_EQ(module_->get("p/7", &got, 100).status, KVBM_OK);
    EXPECT_EQ(got, "7");
    const auto put = module_->put("p/7", "7");
    EXPECT_EQ(put.status, KVBM_OK) << put.message;
    for (int i = 0; i < 60; ++i) EXPECT_EQ(module_->get("p/" + std::to_string(i), &got, 10).status, KVBM_OK);
  };
  ASSERT_TRUE(nodes_[to].ask({"CLUSTER", "SETSLOT", slot, "IMPORTING", id(from)}).starts_with("+OK"));
  ASSERT_TRUE(nodes_[from].ask({"CLUSTER", "SETSLOT", slot, "MIGRATING", id(to)}).starts_with("+OK"));
  works();
  nodes_[from].ask({"MIGRATE", "127.0.0.1", std::to_string(nodes_[to].port()), key, "0", "5000"});
  EXPECT_TRUE(nodes_[from].ask({"GET", key}).starts_with("-ASK"));
  works();
  // Puts a large object into a slot that is being moved, where the client must send ASKING.
  ASSERT_EQ(module_->put("p/7", data).status, KVBM_OK);
  ASSERT_EQ(module_->get("p/7", &got, data.size()).status, KVBM_OK);
  EXPECT_TRUE(got == data);
  ASSERT_EQ(module_->remove("p/7").status, KVBM_OK);
  EXPECT_EQ(module_->get("p/7", &got, 10).status, KVBM_ERR_MISS);
  ASSERT_EQ(module_->put("p/7", "7").status, KVBM_OK);
  for (RedisServer* node : {&nodes_[to], &nodes_[from], &nodes_[3 - from - to]})
    node->ask({"CLUSTER", "SETSLOT", slot, "NODE", id(to)});
  works();
  EXPECT_EQ(owner(key, &slot), to);
  // One server ends: operations on its slots fail, all others work, and all work again after its restart.
  const std::string whole = module_->open(cluster_url({{"cluster", "off"}})) == KVBM_OK ? "" : module_->message();
  EXPECT_NE(whole.find("leave cluster=off out"), std::string::npos) << whole;
}

TEST_P(RedisClusterTest, lives_with_a_master_that_is_gone) {
  ASSERT_EQ(module_->open(cluster_url({{"cluster", "on"}})), KVBM_OK) << module_->message();
  for (int i = 0; i < 30; ++i) ASSERT_EQ(module_->put("p/" + std::to_string(i), "x").status, KVBM_OK);
  ASSERT_TRUE(nodes_[0].save());
  nodes_[0].kill();
  std::string got;
  size_t failed = 0;
  for (int i = 0; i < 30; ++i) {
    const auto done = module_->get("p/" + std::to_string(i), &got, 10);
    EXPECT_TRUE(done.status == KVBM_OK || done.status == KVBM_ERR_IO || done.status == KVBM_ERR_AGAIN) << done.message;
    failed += done.status == KVBM_OK ? 0 : 1;
  }
  EXPECT_GE(failed, 1U);
  ASSERT_TRUE(nodes_[0].start_again(true));
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(comes([&] { return module_->get("p/" + std::to_string(i), &got, 10).status == KVBM_OK; }));
  }
}

// The server has a self-signed certificate.
TEST_P(RedisStoreTest, speaks_tls) {
  kvbm::test::TempDir keys;
  const std::string here = keys.path();
  const std::string make =
      "cd " + here +
      " && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=kvbm-test "
      "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem 2>/dev/null && "
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=kvbm-test "
      "-addext subjectAltName=DNS:elsewhere -keyout other.key -out other.pem 2>/dev/null";
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "openssl is not installed";
  const auto options = [&](const std::string& cert, const std::string& key) {
    return Options{"--tls-port",         "",
                   "--tls-cert-file",    here + "/" + cert,
                   "--tls-key-file",     here + "/" + key,
                   "--tls-ca-cert-file", here + "/cert.pem"};
  };
  if (!server_.start(options("cert.pem", "key.pem"))) GTEST_SKIP() << "this server has no TLS";
  StoreUrl there = {"rediss", "127.0.0.1:" + std::to_string(server_.tls_port()), "/0", {{"ca", here + "/cert.pem"}}, "",
                    ""};
  // The server requires a client certificate.
  const kvbm_status_t without = module_->open(there);
  EXPECT_TRUE(without == KVBM_OK ? logged("set cert and key")
                                 : module_->message().find("certificate required") != std::string::npos);
  there.options["cert"] = here + "/cert.pem";
  there.options["key"] = here + "/key.pem";
  ASSERT_EQ(module_->open(there), KVBM_OK) << module_->message();
  const std::string data = bytes_of((3 << 20) + 5, 4);
  std::vector<std::unique_ptr<Started>> many;
  std::string copy = data;
  for (int i = 0; i < 20; ++i)
    many.push_back(module_->start(KVBM_STORE_PUT, "p" + std::to_string(i), copy.data(), copy.size(), 0, 60));
  for (auto& one : many) ASSERT_EQ(module_->wait(*one).status, KVBM_OK) << one->op.message;
  std::string got;
  ASSERT_EQ(module_->get("p7", &got, data.size(), 0, 60).status, KVBM_OK);
  EXPECT_TRUE(got == data);
  EXPECT_EQ(module_->list("").names.size(), 20U);
  StoreUrl wrong = there;
  wrong.options["ca"] = here + "/other.pem";
  EXPECT_EQ(refused(wrong, "self-signed"), KVBM_ERR_CONFIG);
  wrong.options["ca"] = here + "/missing.pem";
  EXPECT_EQ(refused(wrong, "missing.pem"), KVBM_ERR_CONFIG);
  wrong = there;
  wrong.authority = server_.address();
  const kvbm_status_t plain = module_->open(wrong, 6'000'000'000);
  EXPECT_TRUE(plain == KVBM_OK ? logged("redis:// there?") : module_->message().find("redis://") != std::string::npos);
  // The certificate is another host's.
  ASSERT_TRUE(server_.start(options("other.pem", "other.key")));
  there.authority = "127.0.0.1:" + std::to_string(server_.tls_port());
  there.options["ca"] = here + "/other.pem";
  EXPECT_EQ(refused(there, "IP address mismatch"), KVBM_ERR_CONFIG);
  there.options["verify"] = "ca";
  EXPECT_EQ(module_->open(there), KVBM_OK) << module_->message();
  there.options.erase("ca");
  there.options["verify"] = "off";
  EXPECT_EQ(module_->open(there), KVBM_OK) << module_->message();
}

INSTANTIATE_TEST_SUITE_P(Servers, RedisStoreTest,
                         ::testing::Values(RedisServer::Kind::redis, RedisServer::Kind::valkey),
                         [](const auto& one) { return RedisServer::name_of(one.param); });
INSTANTIATE_TEST_SUITE_P(Servers, RedisClusterTest,
                         ::testing::Values(RedisServer::Kind::redis, RedisServer::Kind::valkey),
                         [](const auto& one) { return RedisServer::name_of(one.param); });

}  // namespace
}  // namespace store_redis_test
