// Blocks that come from another process, coded where that pays, also over slow links. How much sooner they come is for the
// benchmark to say, on a machine that does nothing else. Slow links need the right to make a network namespace, and tc.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/run_command.h"

namespace kvbm::test {
namespace {

TEST(NodeCodec, loads_are_measured_coded_and_plain) {
  const Ran ran = run("bench node --codec --rounds 3 --json", " 2>/dev/null");
  ASSERT_EQ(ran.exit_code, 0) << ran.text;
  const auto rows = nlohmann::json::parse(ran.text, nullptr, false);
  ASSERT_TRUE(rows.is_array()) << ran.text;
  bool slow = false;
  for (const auto& row : rows) {
    EXPECT_GT(row.value("value", 0.0), 0.0) << ran.text;
    EXPECT_GT(row.value("ratio", 0.0), 0.0) << ran.text;
    slow = slow || row.value("name", "") == "node.tcp.codec.auto_1gbit";
  }
  EXPECT_FALSE(rows.empty());
  if (!slow) GTEST_SKIP() << "NodeCodec: no network namespace can be made here, or there is no tc";
}

}  // namespace
}  // namespace kvbm::test
