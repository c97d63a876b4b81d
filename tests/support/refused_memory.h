// Refuses one allocation of a program, selected by its count. support/refusing_allocator.h does the refusing, in the
// one source of the program that includes it.
#pragma once

#include <execinfo.h>

#include <atomic>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace kvbm::test {

// Code that a thread runs: a task of the library, a call of a caller, or the test itself.
enum class Place : uint8_t { library, caller, nowhere };
inline thread_local Place memory_place = Place::library;  // the test's own thread says when it is somewhere else

class InPlace {
 public:
  explicit InPlace(Place now) : was_(std::exchange(memory_place, now)) {}
  ~InPlace() { memory_place = was_; }
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;

 private:
  const Place was_;
};

struct MemoryFault {
  std::atomic<uint64_t> seen{0};
  std::atomic<uint64_t> at{0};  // 0: none
  std::atomic<bool> counting{false};
  std::atomic<bool> fired{false};
  Place where = Place::caller;
  bool print = false;  // the stack of the one that is refused
  // If not null, receives the number of the first allocation of each call stack. Used by one thread.
  std::vector<uint64_t>* sites = nullptr;
};
inline MemoryFault fault;

inline uint64_t stack_hash() {
  void* frames[32];
  uint64_t hash = 0xcbf29ce484222325ULL;
  const int n = backtrace(frames, 32);
  for (int i = 0; i < n; ++i) hash = (hash ^ reinterpret_cast<uintptr_t>(frames[i])) * 0x100000001b3ULL;
  return hash;
}

inline bool refuse() {
  if (memory_place != fault.where || !fault.counting.load(std::memory_order_relaxed)) return false;
  const uint64_t number = fault.seen.fetch_add(1) + 1;
  const bool this_one = number == fault.at.load(std::memory_order_relaxed);
  if (!this_one && fault.sites == nullptr) return false;
  const InPlace out(Place::nowhere);  // the following code allocates
  if (fault.sites != nullptr) {
    static std::set<uint64_t> stacks;
    if (fault.sites->empty()) stacks.clear();
    if (stacks.insert(stack_hash()).second) fault.sites->push_back(number);
  }
  if (!this_one) return false;
  fault.fired = true;
  if (fault.print) {
    void* frames[40];
    backtrace_symbols_fd(frames, backtrace(frames, 40), 2);
  }
  return true;
}

}  // namespace kvbm::test
