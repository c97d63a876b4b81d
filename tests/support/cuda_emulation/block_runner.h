// One block of a grid: its threads as fibers, and their barriers and exchanges.
//
// Thread: all calls on one runner come from one thread of the system. The runner of that thread is current_runner().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/cuda_emulation/fiber.h"
#include "support/cuda_emulation/launch.h"

namespace kvbm::emulation {

struct Coordinates {
  Dim thread, block, block_dim, grid_dim;
};

// Place in a kernel's source where a thread waits.
struct Site {
  const char* what;
  const char* file;
  int line;
};

constexpr unsigned kWarp = 32;

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  Outcome run(const LaunchShape& shape, const Options& options, Dim block, const std::function<void()>& body);

  // Called by the fiber that runs.
  [[nodiscard]] const Coordinates& here() const noexcept { return current_->where; }
  [[nodiscard]] void* dynamic_shared() noexcept { return shared_.get(); }
  // Waits until `count` threads are at the barrier `id`; 0: all of the block.
  void barrier(unsigned id, unsigned count, const Site& site);
  // Waits until all lanes of `mask` are here; then returns the value of the lane `from`.
  uint64_t exchange(unsigned mask, uint64_t value, const Site& site, unsigned from);
  // Waits like the function above, then returns the result of `of_all` over the values of all lanes; it is called once.
  using Combine = uint64_t (*)(const uint64_t (&values)[kWarp], unsigned mask);
  uint64_t combine(unsigned mask, uint64_t value, const Site& site, Combine of_all);
  void give_way(const Site& site);
  [[noreturn]] void fail(Outcome::Kind kind, std::string text);
  // Reports accesses that the device would not make.
  void check_access(const void* address, size_t bytes, size_t alignment, bool writes);

 private:
  enum class State : uint8_t { ready, waits, ended };
  struct Exchange;
  struct Thread {
    Fiber fiber;
    BlockRunner* runner = nullptr;
    Coordinates where;
    unsigned index = 0;
    State state = State::ended;
    Site site{};
    Exchange* exchange = nullptr;
  };
  struct Barrier {
    unsigned expected = 0;
    Site site{};
    std::vector<Thread*> waiting;
  };
  // An operation of (a part of) a warp, kept until every lane has read it.
  struct Exchange {
    unsigned mask = 0;
    unsigned arrived = 0;
    unsigned readers = 0;
    Site site{};
    uint64_t values[kWarp] = {};
    uint64_t result = 0;
  };

  static void thread_main(void* thread);
  void suspend_current();
  void make_ready(Thread& thread);
  Exchange& open_exchange(unsigned warp, unsigned mask, const Site& site);
  Exchange& meet(unsigned mask, uint64_t value, const Site& site, Combine of_all);
  void leave(Exchange& x);
  void turn();
  [[nodiscard]] Outcome stuck() const;
  [[nodiscard]] std::string name_of(const Thread& thread) const;
  uint64_t random();

  const Options* options_ = nullptr;
  uint64_t random_ = 0;
  const std::function<void()>* body_ = nullptr;
  std::vector<std::unique_ptr<Thread>> threads_;  // as many as the largest block had; stacks are reused
  std::vector<unsigned> order_;
  std::vector<Barrier> barriers_;
  std::vector<std::vector<std::unique_ptr<Exchange>>> exchanges_;  // by warp
  std::unique_ptr<unsigned char[]> shared_;
  Thread* current_ = nullptr;
  size_t n_threads_ = 0;
  size_t ended_ = 0;
  bool moved_ = false;  // a thread ran in this turn
  uint64_t spins_ = 0;  // turns of __nanosleep since anything else happened
  Outcome outcome_;
};

// The runner of this thread of the system, while it runs a block.
inline constinit thread_local BlockRunner* t_runner = nullptr;
inline BlockRunner& current_runner() { return *t_runner; }

}  // namespace kvbm::emulation
