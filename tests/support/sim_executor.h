// The simulation's executor: one thread, an order among ready tasks drawn from a seed, and a clock
// that stands still while tasks run and jumps to the next timer when none is ready.
//
//   SimExecutor sim(seed);
//   thing.start(...);                       // posts to sim
//   ASSERT_TRUE(sim.run_until([&] { return done; }));
//
// Every step, and every note(), enters log_hash(): two runs of one seed must give the same hash.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/crypto/random.h"
#include "base/thread/executor.h"
#include "base/thread/task_queue.h"

namespace kvbm::test {

class SimExecutor final : public Executor {
 public:
  explicit SimExecutor(uint64_t seed) : random_(seed) {}

  void post(Task task) override;
  void post_at(uint64_t when_ns, Task task) override;
  [[nodiscard]] const Clock& clock() const noexcept override { return clock_; }

  // Runs one task, moving the clock first if only timers are left. Returns false if there is nothing to run.
  bool step();
  // Runs until nothing is left; gives the steps taken. Ends after `max_steps`, which says that
  // something posts itself for ever.
  uint64_t run(uint64_t max_steps = 10'000'000);
  // Runs until `done()`. Returns false if nothing was left, or max_steps were taken, before that.
  bool run_until(UniqueFunction<bool()> done, uint64_t max_steps = 10'000'000);
  // Runs for that long on the simulation's clock.
  void run_for(uint64_t ns);
  // Runs until `done()`, for at most that long. Returns whether `done()` was true.
  bool run_until_within(UniqueFunction<bool()> done, uint64_t ns);
  // Moves the clock on without running timers: a stall of the whole machine.
  void advance(uint64_t ns) { clock_.now += ns; }
  // Forgets all tasks and timers: the process was killed.
  void drop_all();

  // Returns the random source of everything in this simulation.
  Random& random() { return random_; }
  // Enters an event of the caller's into the log hash.
  void note(std::string_view what, uint64_t value = 0);
  [[nodiscard]] uint64_t log_hash() const { return hash_; }
  [[nodiscard]] uint64_t steps() const { return steps_; }

 private:
  struct SimClock final : Clock {
    [[nodiscard]] uint64_t now_ns() const noexcept override { return now; }
    uint64_t now = 1'000'000'000;
  };
  struct Ready {
    uint64_t id;
    Task task;
  };
  void mix(uint64_t v);

  SimClock clock_;
  SeededRandom random_;
  std::vector<Ready> ready_;
  TimerHeap timers_;
  uint64_t next_id_ = 0;
  uint64_t steps_ = 0;
  uint64_t hash_ = 0xcbf29ce484222325ULL;  // FNV-1a
};

}  // namespace kvbm::test
