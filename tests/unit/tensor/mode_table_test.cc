#include "tensor/mode_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "support/temp_dir.h"

namespace kvbm::tensor::mode_table_test {
namespace {

class ModeTableTest : public ::testing::Test {
 protected:
  Result<ModeTable> measure(uint64_t values, int rounds, const std::atomic<bool>* stop, uint64_t limit = UINT64_MAX,
                            uint64_t row = 0) {
    const std::string path = dir_.path() + "/values";
    std::ofstream(path, std::ios::binary) << std::string(values * 4, '\x3F');
    const auto input = Input::open(path);
    if (!input.ok()) return input.status();
    Claims claims;
    claims.kind = Kind::raw;
    claims.element = element_by_name("fp32");
    const auto file = describe(input.value(), claims);
    if (!file.ok()) return file.status();
    TableOptions options;
    options.modes = {codec::Mode::standard, codec::Mode::int8, codec::Mode::zstd};
    options.rounds = rounds;
    options.limit_bytes = limit;
    options.row = row;
    options.quiet = true;
    return measure_modes(input.value(), file.value(), options, stop);
  }
  test::TempDir dir_;
};

// At 4 bytes a call, 32 MiB would take hours.
TEST_F(ModeTableTest, a_file_of_one_value_is_measured_too) {
  const auto table = measure(1, 2, nullptr);
  ASSERT_TRUE(table.ok()) << table.status().message();
  ASSERT_EQ(table.value().rows.size(), 3U);
  EXPECT_EQ(table.value().measured_bytes, 4U);
  EXPECT_GT(table.value().memcpy, 0);
  for (const ModeRow& row : table.value().rows) {
    EXPECT_GT(row.compress, 0);
    EXPECT_GT(row.decompress, 0);
  }
}

TEST_F(ModeTableTest, measures_no_more_than_the_limit_in_whole_rows) {
  struct Case {
    uint64_t limit, row, measured;
  };
  for (const Case& one : {Case{UINT64_MAX, 0, 4'000'000},
                          {4'000'000, 0, 4'000'000},
                          {3'999'999, 0, 3'999'936},
                          {1'000'000, 0, 1'000'000},
                          {1'000'001, 0, 1'000'000},
                          {100'000, 0, 99'968},
                          {100'000, 1000, 96'000},
                          {65'536, 1000, 64'000},
                          {1, 0, 65'536},
                          {1, 1000, 64'000}}) {
    const auto table = measure(1'000'000, 1, nullptr, one.limit, one.row);
    ASSERT_TRUE(table.ok()) << table.status().message();
    EXPECT_EQ(table.value().measured_bytes, one.measured) << one.limit << " " << one.row;
    EXPECT_EQ(table.value().tensor_bytes, 4'000'000U);
  }
}

// The stop comes within a mode; its rounds would take days.
TEST_F(ModeTableTest, a_stop_is_heard_at_once) {
  for (const uint64_t values : {uint64_t{1}, uint64_t{100'000}}) {
    std::atomic<bool> stop{false};
    std::thread later([&] { stop.store(true); });
    const auto table = measure(values, 10'000'000, &stop);
    later.join();
    EXPECT_EQ(table.status().code(), Code::cancelled) << values;
  }
}

}  // namespace
}  // namespace kvbm::tensor::mode_table_test
