// The allocations of this program are refused as often as a test says, in the way the standard gives operator new.
#include "base/thread/memory_wait.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <thread>

namespace {

// How often the next allocation of this thread is refused.
thread_local int refusals = 0;

void* take(std::size_t bytes) {
  for (;;) {
    if (refusals == 0) {
      if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
    } else {
      --refusals;
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

// Not inlined: the compiler would take new and free for a pair that does not match.
__attribute__((noinline)) void give(void* memory) { std::free(memory); }

}  // namespace

void* operator new(std::size_t bytes) { return take(bytes); }
void operator delete(void* p) noexcept { give(p); }
void operator delete(void* p, std::size_t) noexcept { give(p); }

namespace kvbm::memory_wait_test {
namespace {

bool is_refused() {
  try {
    ::operator delete(::operator new(1));  // a new-expression may be left out by the compiler
    return false;
  } catch (const std::bad_alloc&) {
    return true;
  }
}

TEST(MemoryWait, waits_as_often_as_memory_is_refused_and_counts_it) {
  const uint64_t before = memory_waits();
  const MemoryWait patient;
  refusals = 3;
  EXPECT_FALSE(is_refused());
  EXPECT_EQ(refusals, 0);
  EXPECT_EQ(memory_waits(), before + 3);
}

TEST(MemoryWait, ends_with_its_scope_and_nests) {
  {
    const MemoryWait outer;
    { const MemoryWait inner; }
    refusals = 1;
    EXPECT_FALSE(is_refused());
  }
  refusals = 1;
  EXPECT_TRUE(is_refused());
  EXPECT_EQ(refusals, 0);
}

TEST(MemoryWait, of_one_thread_is_not_another_ones) {
  const MemoryWait patient;
  bool refused = false;
  std::thread other([&] {
    refusals = 1;
    refused = is_refused();
  });
  other.join();
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace kvbm::memory_wait_test
