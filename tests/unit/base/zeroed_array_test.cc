#include "base/memory/zeroed_array.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "support/counts.h"

namespace kvbm::zeroed_array_test {
namespace {

// Counts the pages of an array that the kernel has given memory.
size_t resident_pages(std::span<uint64_t> array) {
  std::vector<unsigned char> pages((array.size_bytes() + 4095) / 4096);
  EXPECT_EQ(mincore(array.data(), array.size_bytes(), pages.data()), 0);
  return static_cast<size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(ZeroedArray, is_zero_and_takes_memory_where_it_is_used) {
  ZeroedArray<uint64_t> array(8U << 20);  // 64 MiB
  EXPECT_EQ(array.bytes(), 64U << 20);
  // Where huge pages are always used, one of them has 512 pages.
  const size_t page = 512;
  EXPECT_EQ(resident_pages(array.all()), 0U);
  array.all()[0] = 1;
  array.all().back() = 2;
  EXPECT_GE(resident_pages(array.all()), 2U);
  EXPECT_LE(resident_pages(array.all()), 2 * page);
  EXPECT_EQ(std::count(array.all().begin() + 1, array.all().end() - 1, 0U),
            static_cast<std::ptrdiff_t>(array.size() - 2));
}

TEST(ZeroedArray, of_nothing_has_nothing) {
  ZeroedArray<uint64_t> none(0);
  EXPECT_EQ(none.size(), 0U);
  EXPECT_TRUE(none.all().empty());
}

TEST(ZeroedArray, that_no_system_can_have_is_refused) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer ends the process for such a size";
  EXPECT_THROW(ZeroedArray<uint64_t>(SIZE_MAX), std::bad_alloc);
  EXPECT_THROW(ZeroedArray<uint64_t>(SIZE_MAX / 8 + 1), std::bad_alloc);
  EXPECT_THROW(ZeroedArray<uint64_t>(PTRDIFF_MAX / 8), std::bad_alloc);
}

}  // namespace
}  // namespace kvbm::zeroed_array_test
