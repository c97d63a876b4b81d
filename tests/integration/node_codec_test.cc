// Blocks and sessions that come from another process, coded where that pays, also over slow links; the bench compares
// what came with what was sent, each time. How much sooner they come is for the benchmark to say, on a machine that
// does nothing else. Slow links need the right to make a network namespace, and tc.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "support/pool_member.h"
#include "support/run_command.h"

namespace kvbm::test::node_codec_test {
namespace {

TEST(NodeCodec, loads_and_sessions_are_measured_coded_and_plain) {
  const Ran ran = run("bench node --codec --rounds 1 --json", " 2>/dev/null");
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
    EXPECT_EQ(names.count(kind.substr(0, kind.size() - 4) + "off"), 1U) << kind;
    EXPECT_EQ(names.count(kind + "_4gbit"), names.count(kind + "_1gbit")) << kind;
  }
  EXPECT_EQ(names.count("node.tcp.codec.auto_1gbit"), names.count("node.tcp.session_codec.auto_1gbit"));
  if (names.count("node.tcp.codec.auto_1gbit") == 0)
    GTEST_SKIP() << "NodeCodec: no network namespace can be made here, or there is no tc";
}

// A node that is asked for blocks repeatedly shows in its metrics the measured times and the chosen way.
TEST(NodeCodec, metrics_say_what_auto_found_out) {
  MemberSetup setup;
  setup.name = "server";
  setup.settings = {{"node.codec", "auto"}};
  const auto server = PoolMember::open(setup);
  ASSERT_NE(server, nullptr);
  setup.name = "reader";
  setup.listen = "";
  setup.peers = server->address();
  const auto reader = PoolMember::open(setup);
  ASSERT_NE(reader, nullptr);
  constexpr size_t kBlocks = 16;
  ASSERT_EQ(server->put(1, 0, kBlocks), KVBM_OK);
  ASSERT_TRUE(wait_until([&] { return reader->ready() == 1; })) << reader->states();
  constexpr std::chrono::seconds kLong{20};
  for (int i = 0; i < 24; ++i) {
    ASSERT_EQ(reader->load(PoolMember::keys_of(1, 0, kBlocks), kLong, kLong, false).right, kBlocks) << i;
  }
  const std::string told = reader->metrics();
  EXPECT_NE(told.find("\nkvbm_node_codec_chosen{node=\""), std::string::npos) << told;
  EXPECT_NE(told.find(",of=\"records\",size=\"middle\",way=\"plain\"} "), std::string::npos) << told;
}

}  // namespace
}  // namespace kvbm::test::node_codec_test
