#include "support/sim_process.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kvbm::test {

namespace {

// Timers that are further away never fall due in a simulation.
constexpr uint64_t kFarNs = 1'000'000'000'000'000;

}  // namespace

// State that outlives the process while the simulation still has tasks of it.
struct SimProcess::State : std::enable_shared_from_this<State> {
  struct OwnClock final : Clock {
    explicit OwnClock(const Clock& of) : world(of), world_base(of.now_ns()), base(of.now_ns()) {}
    [[nodiscard]] uint64_t now_ns() const noexcept override {
      return base + (world.now_ns() - world_base) * per_mille / 1000;
    }
    // Returns the world's time at which this process's clock reads when_ns; kNever if that is too far.
    [[nodiscard]] uint64_t world_at(uint64_t when_ns) const noexcept {
      if (when_ns <= now_ns()) return world.now_ns();
      if (when_ns - base > kFarNs) return kNever;
      return world_base + ((when_ns - base) * 1000 + per_mille - 1) / per_mille;
    }
    const Clock& world;
    uint64_t world_base;
    uint64_t base;
    uint64_t per_mille = 1000;
  };

  explicit State(SimExecutor& executor) : sim(executor), clock(executor.clock()) {}

  void start(Task task) {
    sim.post([self = shared_from_this(), was = life, work = std::move(task)]() mutable {
      if (was != self->life) return;
      if (self->frozen) {
        self->held.push_back(std::move(work));
      } else {
        work();
      }
    });
  }
  // Sets a task of the simulation for the first timer of this process.
  void arm() {
    const uint64_t at = timers.empty() ? kNever : clock.world_at(timers.first_ns());
    if (at == kNever || at >= armed_ns) return;
    armed_ns = at;
    sim.post_at(at, [self = shared_from_this(), at, number = ++armed] {
      if (number != self->armed) return;  // an earlier one came between
      self->armed_ns = kNever;
      while (!self->timers.empty() && self->timers.first_ns() <= self->clock.now_ns()) {
        self->start(self->timers.pop());
      }
      self->arm();
    });
  }
  void arm_again() {
    armed_ns = kNever;
    arm();
  }

  SimExecutor& sim;
  OwnClock clock;
  TimerHeap timers;
  uint64_t armed_ns = kNever;  // by the world's clock
  uint64_t armed = 0;
  uint64_t life = 0;
  bool frozen = false;
  std::vector<Task> held;
};

SimProcess::SimProcess(SimExecutor& sim) : state_(std::make_shared<State>(sim)) {}

void SimProcess::post(Task task) { state_->start(std::move(task)); }

void SimProcess::post_at(uint64_t when_ns, Task task) {
  state_->timers.push(when_ns, std::move(task));
  state_->arm();
}

const Clock& SimProcess::clock() const noexcept { return state_->clock; }

void SimProcess::set_clock(uint64_t begins_ns, uint64_t per_mille) {
  State::OwnClock& clock = state_->clock;
  clock.base = std::max(begins_ns, clock.now_ns());
  clock.world_base = clock.world.now_ns();
  clock.per_mille = per_mille;
  state_->arm_again();
}

void SimProcess::skip(uint64_t ns) {
  state_->clock.base += ns;
  state_->arm_again();
}

void SimProcess::freeze() { state_->frozen = true; }

void SimProcess::thaw() {
  state_->frozen = false;
  for (Task& task : std::exchange(state_->held, {})) state_->start(std::move(task));
}

void SimProcess::kill() {
  ++state_->life;
  state_->frozen = false;
  // Tasks may post while they are destroyed.
  const std::vector<Task> held = std::exchange(state_->held, {});
  const TimerHeap timers = std::exchange(state_->timers, {});
  state_->armed_ns = kNever;
  ++state_->armed;
}

}  // namespace kvbm::test
