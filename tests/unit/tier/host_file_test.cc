// The page and the marks of a host tier in a file.
#include "tier/host/host_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "support/temp_dir.h"
#include "tier/host/host_arena.h"

namespace kvbm::tier::host_file_test {
namespace {

NamespaceId id(uint64_t n) {
  NamespaceId out{};
  std::memcpy(out.bytes.data(), &n, sizeof n);
  return out;
}

struct Page {
  alignas(8) std::byte bytes[HostFile::kBytes] = {};

  // Opens the page as a new process does.
  HostFile open(uint64_t slots = 10) {
    HostFile file(bytes, 4096, slots);
    if (!file.begin()) {
      file.forget();
      file.found();
    }
    return file;
  }
};

TEST(HostFile, keeps_epochs_and_never_lowers_one) {
  Page page;
  HostFile first = page.open();
  EXPECT_EQ(first.epoch(id(1)), 0U);
  first.set_epoch(id(1), 3);
  first.set_epoch(id(2), 1);
  first.set_epoch(id(1), 2);
  HostFile next = page.open();
  EXPECT_EQ(next.epoch(id(1)), 3U);
  EXPECT_EQ(next.epoch(id(2)), 1U);
  EXPECT_EQ(next.epoch(id(3)), 0U);
}

TEST(HostFile, another_shape_or_version_has_nothing_that_counts) {
  Page page;
  page.open().set_epoch(id(1), 3);
  HostFile other(page.bytes, 4096, 11);
  EXPECT_FALSE(other.begin());
  EXPECT_EQ(page.open(11).epoch(id(1)), 0U);
  HostFile back(page.bytes, 4096, 10);
  EXPECT_FALSE(back.begin());
  page.open().set_epoch(id(1), 3);
  page.bytes[8] ^= std::byte{1};
  EXPECT_FALSE(HostFile(page.bytes, 4096, 10).begin());
}

// A process that is killed while it gives the file another shape leaves a file without one.
TEST(HostFile, a_change_of_shape_that_was_cut_short_leaves_no_shape) {
  Page page;
  page.open().set_epoch(id(1), 3);
  HostFile(page.bytes, 4096, 11).forget();
  EXPECT_FALSE(HostFile(page.bytes, 4096, 10).begin());
  EXPECT_FALSE(HostFile(page.bytes, 4096, 11).begin());
}

TEST(HostFile, knows_its_own_at_every_step_and_what_is_empty_and_nothing_else) {
  Page page;
  EXPECT_TRUE(HostFile::is_one(page.bytes));
  page.open().set_epoch(id(1), 3);
  EXPECT_TRUE(HostFile::is_one(page.bytes));
  HostFile(page.bytes, 4096, 11).forget();
  EXPECT_TRUE(HostFile::is_one(page.bytes));
  // The process was killed while it cleared the page for another shape.
  std::memset(page.bytes + 8, 0, 100);
  EXPECT_TRUE(HostFile::is_one(page.bytes));
  Page other;
  other.bytes[HostFile::kBytes - 1] = std::byte{1};
  EXPECT_FALSE(HostFile::is_one(other.bytes));
  std::memcpy(other.bytes, "root:x:0", 8);
  EXPECT_FALSE(HostFile::is_one(other.bytes));
}

// Peers' reports of namespaces not in use here take at most a quarter of the rows, and no other row's place.
TEST(HostFile, foreign_rows_take_a_quarter_and_raise_no_floor) {
  Page page;
  HostFile file = page.open();
  file.set_epoch(id(1), 3);
  constexpr uint64_t kMany = 10 * HostFile::kRows;
  for (uint64_t n = 100; n < 100 + kMany; ++n) file.set_epoch(id(n), uint64_t{1} << 30, true);
  size_t foreign = 0;
  for (const EpochRow& row : file.epochs()) foreign += row.foreign ? 1 : 0;
  EXPECT_EQ(foreign, HostFile::kForeignRows);
  EXPECT_EQ(file.epochs().size(), HostFile::kForeignRows + 1);
  EXPECT_EQ(file.epoch(id(1)), 3U);
  // Rows of this process get all remaining rows, and those of foreign namespaces, too.
  for (uint64_t n = 2; n <= HostFile::kRows; ++n) file.set_epoch(id(10'000 + n), 2);
  HostFile next = page.open();
  EXPECT_EQ(next.epoch(id(1)), 3U);
  EXPECT_EQ(next.epoch(id(50'000)), 0U) << "no namespace begins later for it";
  for (const EpochRow& row : next.epochs()) EXPECT_FALSE(row.foreign);
  file.set_epoch(id(60'000), 1, true);
  EXPECT_EQ(page.open().epoch(id(60'000)), 0U) << "there is no room for it";
}

TEST(HostFile, a_row_that_is_given_back_is_free_and_one_that_is_used_here_stays) {
  Page page;
  HostFile file = page.open();
  file.set_epoch(id(1), 3, true);
  file.set_epoch(id(2), 3, true);
  file.set_epoch(id(1), 3);
  file.forget_epoch(id(2));
  ASSERT_EQ(file.epochs().size(), 1U);
  EXPECT_FALSE(file.epochs()[0].foreign);
  EXPECT_EQ(page.open().epoch(id(2)), 0U);
}

TEST(HostFile, more_namespaces_than_rows_lose_hits_and_never_an_ended_epoch) {
  constexpr uint64_t kNames = 3 * HostFile::kRows;
  Page page;
  HostFile file = page.open();
  for (uint64_t n = 1; n <= kNames; ++n) {
    file.set_epoch(id(n), n % 5 + 1);
    EXPECT_EQ(file.epoch(id(n)), n % 5 + 1);
  }
  EXPECT_EQ(file.epoch(id(kNames + 1)), 0U);  // this process knows that it is new
  HostFile next = page.open();
  for (uint64_t n = 1; n <= kNames; ++n) EXPECT_GE(next.epoch(id(n)), n % 5 + 1) << n;
  EXPECT_LE(next.epoch(id(kNames + 1)), 5U);
  // Raising a namespace without a row above the floor must not be undone by the floor.
  const uint64_t before = next.epoch(id(kNames + 2));
  next.set_epoch(id(kNames + 2), 1);
  EXPECT_EQ(page.open().epoch(id(kNames + 2)), before);
  next.set_epoch(id(kNames + 2), before + 1);
  EXPECT_EQ(page.open().epoch(id(kNames + 2)), before + 1);
}

HostOptions in_a_file(const std::string& path, uint64_t slots) {
  HostOptions options;
  options.block_bytes = 4096;
  options.capacity_bytes = 4096 + slots * (4096 + HostArena::head_stride(4096) + sizeof(uint64_t));
  options.huge_pages = false;
  options.file = path;
  return options;
}

TEST(HostArena, counts_marks_in_its_capacity_and_has_none_without_a_file) {
  test::TempDir temp;
  auto arena = HostArena::create(in_a_file(temp.path() + "/host", 9));
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  EXPECT_EQ(arena.value()->slots(), 9U);
  EXPECT_EQ(arena.value()->marks().size(), 9U);
  EXPECT_FALSE(arena.value()->recovered());
  auto memory = HostArena::create(in_a_file("", 9));
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(memory.value()->marks().empty());
  EXPECT_EQ(memory.value()->epoch(id(1)), 0U);
  EXPECT_TRUE(memory.value()->sync().ok());
}

TEST(HostArena, marks_are_found_again_in_the_same_shape_alone) {
  test::TempDir temp;
  const std::string path = temp.path() + "/host";
  {
    auto arena = HostArena::create(in_a_file(path, 9));
    ASSERT_TRUE(arena.ok());
    arena.value()->marks()[8] = 77;
    arena.value()->set_epoch(id(1), 2);
    EXPECT_TRUE(arena.value()->sync().ok());
  }
  {
    auto again = HostArena::create(in_a_file(path, 9));
    ASSERT_TRUE(again.ok());
    EXPECT_TRUE(again.value()->recovered());
    EXPECT_EQ(again.value()->marks()[8], 77U);
    EXPECT_EQ(again.value()->epoch(id(1)), 2U);
  }
  {
    auto other = HostArena::create(in_a_file(path, 10));
    ASSERT_TRUE(other.ok());
    EXPECT_FALSE(other.value()->recovered());
    for (const uint64_t mark : other.value()->marks()) EXPECT_EQ(mark, 0U);
  }
  auto back = HostArena::create(in_a_file(path, 9));
  ASSERT_TRUE(back.ok());
  EXPECT_FALSE(back.value()->recovered());
  for (const uint64_t mark : back.value()->marks()) EXPECT_EQ(mark, 0U);
}

TEST(HostArena, a_file_of_somebody_else_is_refused_by_name_and_stays_as_it_is) {
  test::TempDir temp;
  const HostOptions options = in_a_file(temp.path() + "/accounts", 9);
  for (const size_t bytes : {size_t{1}, size_t{1266}, size_t{4} << 20}) {
    const std::string text(bytes, 'a');
    std::ofstream(options.file, std::ios::trunc) << text;
    const Status refused = HostArena::create(options).status();
    EXPECT_EQ(refused.code(), Code::exists) << refused.message();
    EXPECT_NE(refused.message().find(options.file), std::string::npos) << refused.message();
    EXPECT_NE(refused.message().find("host.file"), std::string::npos) << refused.message();
    std::ifstream in(options.file);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
  }
  // The file exists before, as users make it to set its owner or mode.
  std::ofstream(options.file, std::ios::trunc).close();
  EXPECT_TRUE(HostArena::create(options).ok());
}

TEST(HostArena, a_file_that_has_an_owner_is_refused_by_name) {
  test::TempDir temp;
  const HostOptions options = in_a_file(temp.path() + "/host", 9);
  auto owner = HostArena::create(options);
  ASSERT_TRUE(owner.ok());
  for (int i = 0; i < 2; ++i) {
    const Status refused = HostArena::create(options).status();
    EXPECT_EQ(refused.code(), Code::in_use);
    EXPECT_NE(refused.message().find(options.file), std::string::npos) << refused.message();
    EXPECT_NE(refused.message().find("host.file"), std::string::npos) << refused.message();
  }
  owner.value().reset();
  EXPECT_TRUE(HostArena::create(options).ok());
}

}  // namespace
}  // namespace kvbm::tier::host_file_test
