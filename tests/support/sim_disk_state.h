// Parts of a SimDisk; private to it.
#pragma once

#include <set>

#include "support/sim_disk.h"

namespace kvbm::test {

inline constexpr uint64_t kSimPage = 4096;
inline constexpr uint64_t kSimSector = 512;
using SimPage = std::array<std::byte, kSimPage>;

// A file's bytes. `durable` remembers, for each page that changed since it was durable, what a power
// cut could bring back; a page that is in neither map is zero.
struct SimInode {
  std::map<uint64_t, SimPage> pages;
  std::map<uint64_t, SimPage> durable;
  std::map<uint64_t, uint64_t> version;  // of the pages in `durable`: counts their changes
  std::set<uint64_t> lost;  // of the pages in `durable`: those of a failed sync, that no later one makes durable
  uint64_t size = 0;
  uint64_t durable_size = 0;
  uint64_t allocated = 0;

  [[nodiscard]] uint64_t charged() const;
  void read(uint64_t offset, std::span<std::byte> out) const;
  void write(uint64_t offset, std::span<const std::byte> bytes);
  void resize(uint64_t bytes);
  SimPage& change(uint64_t page);
  void power_cut(Random& random);
};

// Data that a sync which begins now will make durable.
struct SimSnapshot {
  std::map<uint64_t, SimPage> pages;
  std::map<uint64_t, uint64_t> version;
  uint64_t size = 0;
};
SimSnapshot take_snapshot(const SimInode& inode);
void make_durable(SimInode& inode, const SimSnapshot& snapshot);
// Handles a failed sync: its data is not durable, and later successful syncs do not change that.
void lose(SimInode& inode, const SimSnapshot& snapshot);

struct SimEntryChange {
  enum class Kind { create, remove, rename } kind;
  std::string name;
  std::string to;
  std::shared_ptr<SimInode> inode;
};
using SimEntries = std::map<std::string, std::shared_ptr<SimInode>>;
void apply_change(SimEntries& entries, const SimEntryChange& change);

struct SimFolder {
  SimEntries entries;
  SimEntries durable;
  std::vector<SimEntryChange> since;  // changes of entries since `durable`
  bool locked = false;
  bool has_lock_file = false;
};

struct SimPending {
  SimDisk::Op op;
  std::shared_ptr<SimInode> inode;
  uint64_t offset = 0;
  std::vector<IoRun> runs;      // reads
  std::vector<std::byte> data;  // writes: a copy, since a killed process takes its memory along
  SimSnapshot snapshot;         // syncs
  IoDone done;
  UniqueFunction<void(Status)> synced;
};

struct SimDisk::State : std::enable_shared_from_this<SimDisk::State> {
  State(SimExecutor& executor, Faults* f, uint64_t* min_ns, uint64_t* max_ns, uint64_t bytes)
      : sim(executor), faults(f), min_latency(min_ns), max_latency(max_ns), capacity(bytes) {}

  SimExecutor& sim;
  Faults* faults;
  uint64_t* min_latency;
  uint64_t* max_latency;
  uint64_t capacity;
  std::map<std::string, SimFolder> folders;
  std::map<uint64_t, SimPending> in_flight;
  uint64_t next_id = 0;
  uint64_t generation = 0;  // grows with every crash; older files are closed
  struct Planned {
    uint64_t left = 0;
    Code code = Code::io_error;
  };
  std::array<Planned, kOps> planned{};
  std::array<uint64_t, kOps> counts{};

  // Counts the operation and gives the fault that fail_nth planned for it.
  Status enter(Op op);
  bool chance(double p);
  uint64_t used() const;
  Status room(const SimInode& inode, uint64_t new_size, uint64_t new_allocated) const;
  Status write(SimInode& inode, uint64_t offset, std::vector<std::byte>& data);
  Result<size_t> read(const SimInode& inode, uint64_t offset, std::span<const IoRun> runs);
  Status sync(SimInode& inode, const SimSnapshot& snapshot);
  void start(SimPending pending);
  void finish(uint64_t id);
  void stop_all(bool forget_tasks);
};

}  // namespace kvbm::test
