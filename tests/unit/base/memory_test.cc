#include "base/memory/memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/memory/shared_memory.h"

#include "support/temp_dir.h"

namespace kvbm::memory_test {
namespace {

TEST(Arena, is_zero_and_writable_and_says_what_it_got) {
  auto arena = Arena::map({.bytes = 3 << 20, .file = {}, .interleave = true, .touch_threads = 2});
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  Arena& a = *arena.value();
  EXPECT_EQ(a.bytes(), size_t{4} << 20);
  EXPECT_EQ(a.data()[a.bytes() - 1], std::byte{0});
  a.data()[a.bytes() - 1] = std::byte{1};
  EXPECT_NE(a.describe().find("4194304 bytes"), std::string::npos) << a.describe();
}

TEST(Arena, in_a_file_is_found_again_with_its_bytes) {
  test::TempDir temp;
  const ArenaOptions options{.bytes = 2 << 20, .file = temp.path() + "/arena", .touch_threads = 1};
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

ArenaOptions shared_arena(bool huge_pages = true) {
  ArenaOptions options;
  options.bytes = 4 << 20;
  options.huge_pages = huge_pages;
  options.touch_threads = 2;
  options.shared = true;
  return options;
}

TEST(Arena, shared_is_seen_by_a_read_only_mapping_and_by_no_other) {
  for (const bool huge_pages : {true, false}) {
    auto arena = Arena::map(shared_arena(huge_pages));
    ASSERT_TRUE(arena.ok()) << arena.status().message();
    Arena& a = *arena.value();
    const int fd = a.fd();
    ASSERT_GE(fd, 0);
    EXPECT_TRUE(check_shared_memory(fd, a.bytes()).ok());
    EXPECT_EQ(mmap(nullptr, a.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_EQ(errno, EPERM);
    void* seen = mmap(nullptr, a.bytes(), PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(seen, MAP_FAILED);
    EXPECT_NE(mprotect(seen, a.bytes(), PROT_READ | PROT_WRITE), 0);
    EXPECT_EQ(errno, EACCES);
    a.data()[4711] = std::byte{42};  // the owner's mapping stays writable
    EXPECT_EQ(static_cast<std::byte*>(seen)[4711], std::byte{42});
    munmap(seen, a.bytes());
  }
}

TEST(Arena, shared_cannot_be_shrunk_grown_written_or_punched_by_its_owner) {
  auto arena = Arena::map(shared_arena());
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  Arena& a = *arena.value();
  const auto bytes = static_cast<off_t>(a.bytes());
  EXPECT_NE(ftruncate(a.fd(), 2 << 20), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(ftruncate(a.fd(), bytes * 2), 0);
  EXPECT_EQ(pwrite(a.fd(), "x", 1, 0), -1);
  EXPECT_NE(fallocate(a.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 << 20), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(madvise(a.data(), 2 << 20, MADV_REMOVE), 0);
  EXPECT_NE(fcntl(a.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(Arena, shared_and_in_a_file_at_once_is_refused) {
  ArenaOptions options = shared_arena();
  options.file = "/tmp/arena";
  EXPECT_EQ(Arena::map(options).status().code(), Code::invalid_argument);
}

TEST(SharedMemory, what_could_change_under_a_reader_is_refused) {
  constexpr size_t kBytes = 2 << 20;
  auto loose = make_shared_memory(kBytes, false);
  ASSERT_TRUE(loose.ok()) << loose.status().message();
  const int fd = loose.value().get();
  EXPECT_EQ(check_shared_memory(fd, kBytes).code(), Code::not_permitted);  // no seals
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE), 0);
  EXPECT_EQ(check_shared_memory(fd, kBytes).code(), Code::not_permitted);  // one hole
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(check_shared_memory(ends[0], kBytes).code(), Code::not_permitted);
  ::close(ends[0]);
  ::close(ends[1]);
  auto whole = make_shared_memory(kBytes, false);
  ASSERT_TRUE(whole.ok());
  ASSERT_TRUE(seal_shared_memory(whole.value().get(), kBytes).ok());
  EXPECT_TRUE(check_shared_memory(whole.value().get(), kBytes).ok());
  EXPECT_EQ(check_shared_memory(whole.value().get(), kBytes * 2).code(), Code::not_permitted);
}

}  // namespace
}  // namespace kvbm::memory_test
