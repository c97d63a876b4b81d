// A disk in memory on the simulation's executor: base/io/file.h with latency, faults, kills and power
// cuts from the seed. Sparse: only pages that were written take memory.
//
//   SimExecutor sim(seed);
//   SimDisk disk(sim);
//   disk.faults.read_error = 0.01;                    // by probability, or
//   disk.fail_nth(SimDisk::Op::write, 7);             // the 7th write from now
//   auto dir = disk.open_directory("/tier", true);
//   ... drop everything that uses the disk ...
//   disk.power_cut();                                 // or disk.crash()
//   auto again = disk.open_directory("/tier", false); // what a restart would find
//
// Model. A write takes effect as a whole when it completes, in any order among those in flight. It is durable once a
// sync that began after that has completed. Data of a failed sync is durable only after it was written again, whatever
// later syncs return, as on systems that mark such pages as clean. crash(): the process was killed; completed writes
// stay, each one in flight stays, or not, or by half. power_cut(): in addition every 4 KiB page that is not durable is
// kept, dropped or torn at 512 bytes. Sizes that are not durable are old or new. A directory's creations, removals and
// renames since its last sync are undone from some point on (a directory itself is durable at once). Both drop the
// executor's tasks (completions never run), free the locks, and end all open files: those return Code::closed and may
// be destroyed before or after. Memory of an I/O in flight is not touched afterwards. Direct files refuse unaligned
// requests, like a device.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/file.h"
#include "support/sim_executor.h"

namespace kvbm::test {

class SimDisk final : public FileSystem {
 public:
  enum class Op { read, write, sync, allocate, open, remove, rename, list, directory_sync };
  static constexpr size_t kOps = 9;

  // Chances in [0, 1] that an operation meets the fault. All but the errors are silent.
  struct Faults {
    double read_error = 0;         // Code::io_error, nothing moved
    double write_error = 0;        // Code::io_error, nothing written
    double write_full = 0;         // Code::disk_full, a prefix written
    double sync_error = 0;         // Code::io_error, nothing made durable, by later syncs that succeed neither
    double short_read = 0;         // fewer bytes than asked, as at the end of a file
    double flip_on_read = 0;       // one bit of the returned bytes
    double flip_at_rest = 0;       // one bit of what is written
    double misdirected_write = 0;  // lands some whole pages away, in the same file
    double lost_write = 0;         // reported as done, nothing written
  };
  Faults faults;
  // A transfer takes between these, drawn evenly.
  uint64_t min_latency_ns = 20'000;
  uint64_t max_latency_ns = 2'000'000;

  explicit SimDisk(SimExecutor& sim, uint64_t capacity_bytes = UINT64_MAX);
  ~SimDisk() override;

  Result<std::unique_ptr<Directory>> open_directory(const std::string& path, bool create) override;
  Result<std::unique_ptr<Directory>> visit_directory(const std::string& path) override {
    return open_directory(path, false);
  }
  Result<std::shared_ptr<std::byte[]>> staging(size_t bytes) override;
  [[nodiscard]] std::string describe() const override { return "simulated disk"; }

  // Operation number n (1 = the next) of this kind fails with `code`; one order per kind at a time.
  void fail_nth(Op op, uint64_t n, Code code = Code::io_error);
  // Operations of this kind so far; with fail_nth it gives a fault at every site once.
  [[nodiscard]] uint64_t count(Op op) const;

  // `forget_tasks` false keeps the executor's tasks: for simulations where other machines live on.
  void crash(bool forget_tasks = true);
  void power_cut(bool forget_tasks = true);
  void set_capacity(uint64_t bytes);
  // Bytes that files take up, in whole pages.
  [[nodiscard]] uint64_t used() const;

  // Damage and inspection by name, for tests that aim. False when there is no such file.
  bool flip_bit(const std::string& directory, const std::string& name, uint64_t bit);
  std::optional<std::vector<std::byte>> content(const std::string& directory, const std::string& name) const;

 private:
  friend class SimFile;
  friend class SimDirectory;
  friend class SimLock;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kvbm::test
