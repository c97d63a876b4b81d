#include "cluster/admission/stranger_log.h"

#include <gtest/gtest.h>

#include "support/fake_cuda/log_lines.h"

namespace kvbm::cluster::stranger_log_test {
namespace {

struct World {
  World() { lines.attach(log); }
  Log log;
  test::LogLines lines;
  StrangerLog strangers{&log, "node"};
};

Status why(const char* text) { return {Code::mismatch, text}; }

TEST(StrangerLog, names_the_address_what_it_calls_itself_and_why) {
  World w;
  const NodeId node = node_id_of("somebody");
  w.strangers.refused("10.0.0.7:4711", node, "elsewhere", why("another pool; check node.pool"), 0);
  EXPECT_EQ(w.lines.line(0), "refused a connection from 10.0.0.7:4711, which calls itself node " + short_text(node) +
                                 " of pool \"elsewhere\" (unproven): another pool; check node.pool");
  w.strangers.refused("process 12 at /run/s", node, {}, why("no token"), 0);
  EXPECT_EQ(w.lines.line(1), "refused a connection from process 12 at /run/s, which calls itself node " +
                                 short_text(node) + " (unproven): no token");
  w.strangers.refused("10.0.0.7:4712", {}, {}, {Code::damaged, "", "no node"}, 0);
  EXPECT_EQ(w.lines.line(2), "refused a connection from 10.0.0.7:4712, which has not named its node: no node");
}

TEST(StrangerLog, shows_nothing_that_is_not_printable_and_nothing_at_length) {
  World w;
  const std::string pool = std::string("a\"b\n\x1b[31m\0\xff", 11) + std::string(200, 'x');
  w.strangers.refused(std::string(5000, 'y') + "\r\n", node_id_of("n"), pool, why("why"), 0);
  const std::string line = w.lines.line(0);
  EXPECT_EQ(line.find_first_not_of(" !#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\"0123456789abcdefghijklmnopqrstuvwxyz"
                                   "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
            std::string::npos);
  EXPECT_NE(line.find("of pool \"a?b??[31m??"), std::string::npos) << line;
  EXPECT_LT(line.size(), 400U);
}

// A node with a wrong configuration retries all the time. Its refusals must not hide others.
TEST(StrangerLog, who_tries_again_and_again_is_said_once_for_each_reason) {
  World w;
  const NodeId node = node_id_of("somebody");
  for (int i = 0; i < 100; ++i) {
    const std::string port = std::to_string(4000 + i);
    w.strangers.refused("10.0.0.7:" + port, node, "p", why("wrong key"), 0);
    w.strangers.refused("10.0.0.8:" + port, {}, {}, {Code::damaged, "", "10.0.0.8:" + port + " is no node"}, 0);
    w.strangers.refused("[fe80::1]:" + port, {}, {}, {Code::damaged, "", "no node"}, 0);
  }
  EXPECT_EQ(w.lines.count(), 3U);
  w.strangers.refused("10.0.0.7:1", node, "p", why("another version"), 0);
  ASSERT_EQ(w.lines.count(), 4U);
  EXPECT_NE(w.lines.line(3).find("(297 more were refused"), std::string::npos) << w.lines.line(3);
  w.strangers.refused("10.0.0.7:1", node, "p", why("wrong key"), StrangerLog::kAgainNs - 1);
  EXPECT_EQ(w.lines.count(), 4U);
  w.strangers.refused("10.0.0.7:1", node, "p", why("wrong key"), StrangerLog::kAgainNs);
  EXPECT_EQ(w.lines.count(), 5U);
}

TEST(StrangerLog, says_few_lines_of_many_and_how_many_were_left_out) {
  World w;
  constexpr uint64_t kBegin = 1'000'000 * StrangerLog::kEveryNs;
  int number = 0;
  const auto another = [&](uint64_t now_ns) {
    w.strangers.refused("a", node_id_of(std::to_string(++number)), {}, why("why"), now_ns);
  };
  for (int i = 0; i < 100; ++i) another(kBegin);
  EXPECT_EQ(w.lines.count(), StrangerLog::kBurst);
  another(kBegin + StrangerLog::kEveryNs - 1);
  EXPECT_EQ(w.lines.count(), StrangerLog::kBurst);
  another(kBegin + StrangerLog::kEveryNs);
  EXPECT_EQ(w.lines.count(), StrangerLog::kBurst + 1);
  const std::string left_out = "(" + std::to_string(101 - StrangerLog::kBurst) + " more were refused";
  EXPECT_NE(w.lines.line(StrangerLog::kBurst).find(left_out), std::string::npos) << w.lines.line(StrangerLog::kBurst);
  another(kBegin + StrangerLog::kEveryNs);
  EXPECT_EQ(w.lines.count(), StrangerLog::kBurst + 1);
  // After a quiet time the first kBurst refusals are logged again. A clock that is set back causes no lines.
  for (int i = 0; i < 100; ++i) another(kBegin + 1000 * StrangerLog::kEveryNs);
  EXPECT_EQ(w.lines.count(), 2 * StrangerLog::kBurst + 1);
  another(0);
  EXPECT_EQ(w.lines.count(), 2 * StrangerLog::kBurst + 1);
}

TEST(StrangerLog, who_comes_and_leaves_or_says_nothing_was_not_refused) {
  for (const Code code : {Code::closed, Code::owner_gone, Code::deadline, Code::no_room})
    EXPECT_FALSE(is_refusal(code));
  for (const Code code : {Code::not_permitted, Code::mismatch, Code::newer_version, Code::damaged}) {
    EXPECT_TRUE(is_refusal(code));
  }
}

}  // namespace
}  // namespace kvbm::cluster::stranger_log_test
