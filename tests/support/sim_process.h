// The tasks and the clock of one simulated process: they wait while it is frozen and are dropped when it is killed. Its
// clock begins where it likes, goes at a speed of its own, and may jump forward, as a machine's that was suspended or
// moved does. It never goes back: the library's is monotonic (base/clock.h).
#pragma once

#include <memory>

#include "support/sim_executor.h"

namespace kvbm::test {

class SimProcess final : public Executor {
 public:
  explicit SimProcess(SimExecutor& sim);
  void post(Task task) override;
  void post_at(uint64_t when_ns, Task task) override;  // by its own clock
  [[nodiscard]] const Clock& clock() const noexcept override;

  // Sets the clock: it reads begins_ns now and runs at `per_mille` of the simulation's speed. It must not go back.
  void set_clock(uint64_t begins_ns, uint64_t per_mille);
  // Makes the clock jump forward: timers that are due by then fire now.
  void skip(uint64_t ns);

  void freeze();
  void thaw();
  void kill();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kvbm::test
