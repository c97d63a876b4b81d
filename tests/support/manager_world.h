// One process's whole cache on the simulation: a manager over simulated disks, engines with paged caches, and
// what every block's bytes must be. What the world is made of is drawn from the seed (Shape); World::run does
// random work in it and checks every byte that is reported as loaded.
//
//   World world(seed, faulty);
//   world.run(250);                    // ends with everything finished and nothing held
//   world.seen.loaded ...
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "manager/manager.h"
#include "manager/operation/cache.h"
#include "manager/operation/match.h"
#include "manager/operation/operation.h"
#include "support/event_mirror.h"
#include "support/sim_disk.h"
#include "support/sim_executor.h"
#include "support/temp_dir.h"

namespace kvbm::test {

// Parts of a seed's world.
struct Shape {
  struct Tier {
    bool small = false;     // small enough that segments are always being reclaimed
    uint32_t segments = 0;  // of 64 KiB, a small one
    manager::AdmissionKind admission = manager::AdmissionKind::all;
  };
  explicit Shape(Random& random);
  std::vector<Tier> tiers;   // 1 to 3
  uint32_t units = 1;        // engine blocks in a stored block of namespace 0
  bool ranks = false;        // engines 0 and 1 have half of namespace 0's heads each, and engine 2 all of them
  uint64_t quota_slots = 0;  // of namespace 1; 0 = none
  bool storms = false;       // the disks fail for a while, until the tiers are taken out of service
  bool full_disks = false;   // the file systems fill up now and then
  bool codes = false;        // the tiers code, each time they are opened as chance has it
  bool seals = false;        // and seal
};

// Counts of events, for expectations of tests.
struct Seen {
  uint64_t submitted = 0, completed = 0, loaded = 0, restarts = 0, shutdowns = 0, lost = 0;
  uint64_t coded = 0, decoded = 0, sealed = 0;
  uint64_t reclaimed = 0, moved_down = 0, moves_lost = 0, disabled = 0;
  uint64_t over_quota = 0, registered = 0, partial_loads = 0, repeats = 0;
  uint64_t recovered = 0, forgotten = 0;  // blocks in a host file after a start; starts right after a reset
  uint64_t waited = 0, refused = 0;       // for room; blocks that got none
  uint64_t resliced = 0;                  // keys found in records of other ranks; and lookups that found some of these
  uint64_t shards_missing = 0;
  uint64_t past_host = 0;          // blocks that were loaded without a slot
  uint64_t prefetches_waited = 0;  // for room
  uint64_t taken = 0;              // blocks kept as if another node had given them
  uint64_t no_memory = 0;          // operations that ended so
  uint64_t events_compared = 0, stored_events = 0, removed_below = 0, cleared_events = 0, disabled_events = 0;
};

class World {
 public:
  // `crowded`: the host has few slots, and the caller runs each operation's steps, as in a call without a queue; else
  // the executor does.
  World(uint64_t seed, bool faulty, bool crowded = false);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void run(int steps);
  // From now on compares the sum of events with the contents whenever nothing is in progress, and at the end of each
  // step. False: it has ranks with shards, which events do not distinguish.
  bool follow_events();
  [[nodiscard]] uint64_t log_hash() const { return sim_.log_hash(); }

  Seen seen;

 private:
  static constexpr uint64_t kBlockBytes = 4096;  // of a whole record
  // The heads of larger blocks have room for the leaves of a record of four units.
  static constexpr uint64_t kHostBlockBytes = 4 * kBlockBytes;
  static constexpr uint32_t kKeys = 24;  // most keys of one operation, and of one conversation
  static constexpr size_t kEngines = 3;
  static constexpr size_t kConversations = 10;

  // One engine: its paged cache, and at most one operation at a time, as its memory allows.
  struct Engine {
    std::vector<std::byte> memory = std::vector<std::byte>(kKeys * kBlockBytes);
    std::shared_ptr<manager::Cache> cache[2];  // by namespace
    bool busy = false;
    std::weak_ptr<manager::Operation> operation;
    std::vector<int32_t> status = std::vector<int32_t>(kKeys);
  };
  // Blocks of the managed pool that their user holds.
  struct Held {
    std::vector<SlotId> slots;
    uint64_t conversation = 0;
    bool registered = false;
  };
  // Blocks of a store or load for the checks: the place of each block of each conversation.
  struct Plan {
    size_t ns = 0;
    NamespaceId id;
    uint64_t tag = 0;  // of the shard
    uint64_t conversation = 0;
    uint32_t units = 1;
    uint64_t unit_bytes = 0;
    std::vector<size_t> index;  // of each key in its conversation
    std::vector<uint32_t> ids;  // `units` per key
  };

  // Members in manager_world.cc: start and end of the process.
  void open();
  manager::Options options(const std::string& root);
  void open_namespaces();
  void attach(Engine& engine, size_t which);
  void shut_down();
  void drop();
  void die();
  void die_having_forgotten(std::vector<NamespaceId> ids);
  void check_found_again();
  [[nodiscard]] std::string host_path() const;
  void settle();
  bool step();
  bool run_waited();
  uint64_t drain();
  void faults(bool on);
  void weather();
  void tally();
  void compare_events();

  // Members in manager_world_work.cc: actions of the process.
  void act();
  void store();
  void load();
  void check_loaded(const Engine& engine, const Plan& plan, const std::vector<bool>& there);
  void move(bool up);
  void pool();
  void register_held(Held& held);
  void watch();
  void forget();
  void pin();
  void cancel();
  void invalidate();
  void change_quota();
  void take();
  Engine* idle_engine();
  uint64_t deadline();
  Plan plan_for(const Engine& engine, size_t which, size_t ns, size_t count, bool scattered);
  std::vector<Key> keys(const Plan& plan) const;
  std::vector<Key> chain(size_t ns, uint64_t conversation, size_t count) const;
  static uint64_t tag_of(const Shape& shape, size_t which, size_t ns);
  template <class Op, class Done>
  void start(Engine& engine, std::shared_ptr<Op> operation, Done done);

  SimExecutor sim_;
  SimDisk disk_;
  Log log_;
  SeededRandom random_;
  const bool faulty_;
  const bool crowded_;
  const uint32_t host_slots_;
  const Shape shape_;
  const uint64_t room_wait_ns_;
  const TempDir keys_;
  // True if the host tier is in a file that the next process opens. After a kill it opens a copy made at that moment,
  // because leftovers of a simulated process may still write to the original.
  const bool host_file_;
  const TempDir hosts_;
  uint64_t host_number_ = 0;
  uint64_t least_epoch_[2] = {0, 0};    // of the namespaces, whatever happens
  std::vector<NamespaceId> forgotten_;  // namespaces without blocks in the host after the next start
  std::shared_ptr<manager::Manager> manager_;
  bool follows_events_ = false;
  std::unique_ptr<EventMirror> events_;
  std::shared_ptr<manager::Namespace> ns_[2];
  Engine engines_[kEngines];
  std::vector<block::PinId> pins_;
  std::deque<std::shared_ptr<manager::Match>> watched_;
  std::vector<Held> held_;
  std::vector<std::shared_ptr<manager::Operation>> waited_;  // by callers, which run their steps
  int storm_ = 0;                                            // steps until the weather is good again
};

}  // namespace kvbm::test
