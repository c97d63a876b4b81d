// `kvbm bench copy` as a user runs it: bare copies, and stores and loads of the host tier, each beside its limit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "support/run_command.h"

namespace kvbm::test::copy_command_test {
namespace {

TEST(CopyCommand, has_a_row_with_a_limit_for_each_copy_and_each_call) {
  const Ran ran = run("bench copy --rounds 1 --json", " 2>/dev/null");
  ASSERT_EQ(ran.exit_code, 0) << ran.text;
  const auto rows = nlohmann::json::parse(ran.text, nullptr, false);
  ASSERT_TRUE(rows.is_array()) << ran.text;
  std::set<std::string> names;
  for (const auto& row : rows) {
    const double limit = row.value("limit", 0.0);
    EXPECT_GT(limit, 0.0) << row;
    EXPECT_GT(row.value("value", 0.0), 0.0) << row;
    EXPECT_DOUBLE_EQ(row.value("ratio", 0.0), row.value("value", 0.0) / limit) << row;
    EXPECT_EQ(row.value("unit", ""), "GB/s") << row;
    EXPECT_NE(row.value("limit_name", ""), "") << row;
    EXPECT_TRUE(names.insert(row.value("name", "")).second) << row;
  }
  std::set<std::string> wanted;
  for (const char* copy : {"copy.verified_in.", "copy.verified_out.", "copy.verified_out_then_read."}) {
    for (const char* size : {"64KiB", "1MiB", "16MiB"}) wanted.insert(std::string(copy) + size);
  }
  for (const char* call : {"store.host.", "load.host."}) {
    for (const char* size : {"4KiB", "4KiB_hot", "64KiB", "1MiB", "4MiB", "16MiB"})
      wanted.insert(std::string(call) + size);
  }
  EXPECT_EQ(names, wanted);
}

}  // namespace
}  // namespace kvbm::test::copy_command_test
