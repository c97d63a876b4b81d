// Blocks and sessions that come from another process, coded where that pays, also over slow links; the bench compares what
// came with what was sent, each time. How much sooner they come is for the
// benchmark to say, on a machine that does nothing else. Slow links need the right to make a network namespace, and tc.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "support/run_command.h"

namespace kvbm::test {
namespace {

TEST(NodeCodec, loads_and_sessions_are_measured_coded_and_plain) {
  const Ran ran = run("bench node --codec --rounds 3 --json", " 2>/dev/null");
  ASSERT_EQ(ran.exit_code, 0) << ran.text;
  const auto rows = nlohmann::json::parse(ran.text, nullptr, false);
  ASSERT_TRUE(rows.is_array()) << ran.text;
  std::set<std::string> names;
  for (const auto& row : rows) {
    EXPECT_GT(row.value("value", 0.0), 0.0) << ran.text;
    EXPECT_GT(row.value("ratio", 0.0), 0.0) << ran.text;
    names.insert(row.value("name", ""));
  }
  for (const std::string kind : {"node.tcp.codec.auto", "node.tcp.session_codec.auto"}) {
    EXPECT_EQ(names.count(kind), 1U) << kind;
    EXPECT_EQ(names.count(kind + "_4gbit"), names.count(kind + "_1gbit")) << kind;
  }
  EXPECT_EQ(names.count("node.tcp.codec.auto_1gbit"), names.count("node.tcp.session_codec.auto_1gbit"));
  if (names.count("node.tcp.codec.auto_1gbit") == 0) GTEST_SKIP() << "NodeCodec: no network namespace can be made here, or there is no tc";
}

}  // namespace
}  // namespace kvbm::test
