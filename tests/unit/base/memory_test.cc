#include "base/memory.h"

#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace kvbm {
namespace {

TEST(Arena, is_zero_and_writable_and_says_what_it_got) {
  auto arena = Arena::map({3 << 20, true, "", true, 2});
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  Arena& a = *arena.value();
  EXPECT_EQ(a.bytes(), size_t{4} << 20);
  EXPECT_EQ(a.data()[a.bytes() - 1], std::byte{0});
  a.data()[a.bytes() - 1] = std::byte{1};
  EXPECT_NE(a.describe().find("4194304 bytes"), std::string::npos) << a.describe();
}

TEST(Arena, in_a_file_is_found_again_with_its_bytes) {
  test::TempDir temp;
  const ArenaOptions options{2 << 20, true, temp.path() + "/arena", false, 1};
  {
    auto first = Arena::map(options);
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_FALSE(first.value()->found());
    first.value()->data()[12345] = std::byte{42};
  }
  auto again = Arena::map(options);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again.value()->found());
  EXPECT_EQ(again.value()->data()[12345], std::byte{42});
}

TEST(Arena, refuses_sizes_that_cannot_be) {
  EXPECT_EQ(Arena::map({}).status().code(), Code::invalid_argument);
  ArenaOptions huge;
  huge.bytes = SIZE_MAX / 4;
  EXPECT_EQ(Arena::map(huge).status().code(), Code::no_memory);
}

}  // namespace
}  // namespace kvbm
