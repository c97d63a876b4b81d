// A device for session tests: copies end later, on the session's thread, in any order; it can be lost, and what it
// reads of staging can differ from what the CPU saw. Memory is the process's own.
//
// It keeps the contract of cluster/session/mover.h at its worst: engine memory is read, and the payload written, only
// when the copy ends, and a scatter that will not end well writes into its target all the same.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "cluster/session/mover.h"
#include "support/sim_executor.h"

namespace kvbm::test {

class SimMover final : public cluster::session::SliceMover {
 public:
  explicit SimMover(SimExecutor& sim) : sim_(sim) {}
  ~SimMover() override { *gone_ = true; }

  double spoil = 0;  // of scatters that find damage
  uint64_t delay_ns = 300'000;
  bool held = false;  // nothing ends until release()
  // Number of the machine that the device is in; 0: it shares nothing. Memory shared by one mover can be mapped by
  // others, and stays mapped when its owner is gone.
  uint8_t machine = 0;
  bool refuses_to_map = false;
  std::function<bool()> stopped;  // its process runs nothing now
  // Loses the device: all copies in progress and all later ones end with tier_disabled.
  void lose() { lost_ = true; }
  void release();

  void gather(std::unique_ptr<cluster::session::SliceMove> move, Done done) override;
  void scatter(std::unique_ptr<cluster::session::SliceMove> move, Done done) override;
  [[nodiscard]] std::vector<std::byte> place() const override;
  [[nodiscard]] Status near(ConstBytes place) const override;
  void share(uint64_t bytes, MemoryDone done) override;
  void map(ConstBytes said, uint64_t bytes, MemoryDone done) override;
  void direct(uint64_t bytes, bool written, MemoryDone done) override;
  bool refuses_direct = false;
  // Returns whether the memory was made for transfers by some mover.
  static bool is_direct(const std::byte* data);
  [[nodiscard]] uint64_t landed_moves() const { return landed_moves_; }
  // Returns the memory that is shared; empty before.
  [[nodiscard]] MutableBytes shared() const { return shared_ != nullptr ? MutableBytes(*shared_) : MutableBytes(); }
  [[nodiscard]] uint64_t shared_moves() const { return shared_moves_; }
  [[nodiscard]] uint64_t under_way() const { return under_way_; }
  [[nodiscard]] uint64_t gathers() const { return gathers_; }
  [[nodiscard]] uint64_t scatters() const { return scatters_; }
  // Returns the most runs that a leaf had; 1: each leaf was one run.
  [[nodiscard]] uint32_t most_runs() const { return most_runs_; }

 private:
  struct Job {
    std::unique_ptr<cluster::session::SliceMove> move;
    Done done;
    bool in = false;
  };
  void begin(Job job);
  void try_end(uint64_t number);
  void end(uint64_t number);
  void answer(MemoryDone done, Result<cluster::session::SharedMemory> memory);

  SimExecutor& sim_;
  std::map<uint64_t, Job> jobs_;
  uint64_t next_ = 0, under_way_ = 0, gathers_ = 0, scatters_ = 0;
  uint32_t most_runs_ = 0;
  uint64_t shared_moves_ = 0, landed_moves_ = 0;
  using Memory = std::vector<std::byte>;
  std::shared_ptr<Memory> shared_;
  bool lost_ = false;
  std::shared_ptr<bool> gone_ = std::make_shared<bool>(false);
};

}  // namespace kvbm::test
