#include "support/manager_world.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "layout/engine_forms.h"
#include "support/refused_memory.h"
#include "tier/disk/disk_tier.h"
#include "tier/disk/superblock.h"

namespace kvbm::test {

using namespace manager;  // NOLINT: the subject of this file

Shape::Shape(Random& random) {
  tiers.resize(1 + (random.below(2) == 0 ? random.below(3) : 0));
  for (Tier& tier : tiers) {
    tier.small = random.below(3) != 0;
    tier.segments = 3 + static_cast<uint32_t>(random.below(8));
    tier.admission = static_cast<AdmissionKind>(random.below(4));
  }
  units = 1U << random.below(3);
  ranks = random.below(2) == 0;
  if (random.below(3) == 0) quota_slots = 4 + random.below(16);
  storms = random.below(4) == 0;
  full_disks = random.below(6) == 0;
  codes = random.below(2) == 0;
  seals = codes && random.below(2) == 0;
}

World::World(uint64_t seed, bool faulty, bool crowded)
    : sim_(seed),
      disk_(sim_),
      random_(seed ^ 0x5EED),
      faulty_(faulty),
      crowded_(crowded),
      host_slots_(crowded ? 12 : 40),
      shape_(random_),
      room_wait_ns_(seed % 4 == 0 ? seed % 3 * 500'000 : 1'000'000'000),
      host_file_(seed % 2 == 0) {
  open();
}

World::~World() {
  if (manager_ != nullptr) shut_down();
}

void World::run(int steps) {
  for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
    weather();
    act();
    const uint64_t what = random_.below(1000);
    if (what < 10 && faulty_) {
      die();
    } else if (what < 14) {
      shut_down();
      open();
    }
    for (uint64_t n = random_.below(40); n != 0 && step(); --n) {
    }
    if (follows_events_) drain();
    compare_events();
  }
  if (!::testing::Test::HasFatalFailure()) settle();
}

bool World::follow_events() {
  follows_events_ = !shape_.ranks;
  if (follows_events_) events_ = std::make_unique<EventMirror>(*manager_);
  return follows_events_;
}

void World::compare_events() {
  if (events_ == nullptr) return;
  events_->check();
  ++seen.events_compared;
}

// Runs one task, or one step of an operation that a caller waits for. Returns false if there is nothing to run.
bool World::step() {
  if (run_waited()) return true;
  const InPlace library(Place::library);
  return sim_.step();
}

bool World::run_waited() {
  for (size_t i = 0; i < waited_.size(); ++i) {
    const std::shared_ptr<Operation> operation = waited_[i];
    if (!operation->is_woken()) continue;
    const InPlace caller(Place::caller);
    operation->run_woken();
    return true;
  }
  return false;
}

// Runs until nothing is left. Returns the number of steps.
uint64_t World::drain() {
  constexpr uint64_t kMost = 10'000'000;
  uint64_t steps = 0;
  while (steps < kMost && step()) ++steps;
  return steps;
}

// Ends everything that was begun, and expects that no block is held afterwards.
void World::settle() {
  storm_ = 0;
  disk_.set_capacity(UINT64_MAX);
  faults(false);
  ASSERT_TRUE(drain() < 10'000'000);
  EXPECT_EQ(seen.completed, seen.submitted);
  EXPECT_EQ(get(manager_->counters().operations), 0U);
  EXPECT_EQ(manager_->host().space_queue().waiting(), 0U);
  EXPECT_EQ(manager_->host().landing_staging().used_bytes(), 0U);
  watched_.clear();
  for (Held& held : held_) manager_->host().release(held.slots);
  held_.clear();
  pins_.clear();
  manager_->pins().unpin_owner(7);
  EXPECT_EQ(manager_->counters().matches(), 0U);
  ASSERT_TRUE(drain() < 10'000'000);  // a let-go match may be what a reclaim waited for
  std::vector<block::SlotInfo> infos;
  manager_->host().table().scan(0, infos, host_slots_ + 1);
  for (const block::SlotInfo& info : infos) {
    EXPECT_EQ(info.references, 0U) << "slot " << info.slot;
    EXPECT_EQ(info.pins, 0U) << "slot " << info.slot;
    // An erased parent keeps its slot until its resident children go.
    EXPECT_TRUE(!info.withdrawn || info.children != 0) << "slot " << info.slot;
  }
  compare_events();
  if (!faulty_) {
    EXPECT_EQ(get(manager_->counters().verify_failures), 0U);
    for (const TierCounters& tier : manager_->counters().tiers) EXPECT_EQ(get(tier.damaged), 0U);
  }
  tally();
}

// Adds the counters of a manager that is about to end.
void World::tally() {
  if (events_ != nullptr) {
    seen.stored_events += events_->stored(), seen.removed_below += events_->removed_below();
    seen.cleared_events += events_->cleared(), seen.disabled_events += events_->disabled();
    events_.reset();
  }
  const Counters& counters = manager_->counters();
  seen.over_quota += get(counters.refused_quota);
  seen.refused += get(counters.refused_room);
  seen.waited += counters.room_wait.count();
  seen.resliced += get(counters.keys_resliced), seen.shards_missing += get(counters.shards_missing);
  seen.past_host += get(counters.load_staged);
  seen.prefetches_waited += counters.prefetch_room_wait.count();
  for (TierIndex t = 1; t <= manager_->lower().count(); ++t) {
    seen.reclaimed += get(counters.tiers[t].evictions);
    const tier::TierStats stats = manager_->lower().tier(t).stats();
    const tier::CodecStats& codec = stats.codec;
    seen.moved_down += stats.moved_down, seen.moves_lost += stats.moves_lost;
    seen.coded += codec.coded, seen.decoded += codec.decoded, seen.sealed += codec.sealed;
    seen.disabled += manager_->lower().disabled(t) ? 1 : 0;
  }
}

void World::faults(bool on) {
  SimDisk::Faults f;
  if (on) {
    f.read_error = 0.01, f.write_error = 0.01, f.write_full = 0.005, f.short_read = 0.01, f.flip_on_read = 0.02;
    f.flip_at_rest = 0.01, f.misdirected_write = 0.005, f.lost_write = 0.005;
  }
  disk_.faults = f;
}

// Starts and ends disk faults at random: storms, in which every transfer fails until the tiers are out of service, and
// a full disk, which refuses to grow.
void World::weather() {
  if (storm_ > 0 && --storm_ == 0) {
    disk_.set_capacity(UINT64_MAX);
    faults(faulty_);
  }
  if (storm_ > 0) return;
  if (shape_.storms && faulty_ && random_.below(80) == 0) {
    storm_ = 25;
    disk_.faults.read_error = disk_.faults.write_error = 1;
  } else if (shape_.full_disks && random_.below(40) == 0) {
    storm_ = 25;
    disk_.set_capacity(disk_.used());
  }
}

Options World::options(const std::string& root) {
  Options options;
  options.host.block_bytes = kHostBlockBytes;
  options.host.capacity_bytes = 4096 + host_slots_ * (kHostBlockBytes + tier::HostArena::head_stride(kHostBlockBytes));
  options.host.huge_pages = false;
  if (host_file_) {
    options.host.file = host_path();
    options.host.capacity_bytes += host_slots_ * sizeof(uint64_t);
  }
  options.room_wait_ns = room_wait_ns_;
  for (size_t i = 0; i < shape_.tiers.size(); ++i) {
    const Shape::Tier& shape = shape_.tiers[i];
    TierOptions tier;
    tier.admission = shape.admission;
    if (shape_.codes) {
      constexpr const char* kCodecs[] = {"off", "auto", "auto", "fast", "default", "max", "zstd"};
      tier.codec = kCodecs[random_.below(std::size(kCodecs))];
      tier.codec_for_space = random_.below(2) == 0;
    }
    tier.path = root + "-" + std::to_string(i + 1);
    tier.capacity_bytes = uint64_t{64} << 20;
    if (shape.small) {
      tier::disk::DiskTierOptions disk;
      disk.path = tier.path;
      disk.segment_bytes = 64 << 10;
      disk.capacity_bytes = tier::disk::kSuperblockBytes + 4096 + shape.segments * disk.segment_bytes;
      tier.capacity_bytes = disk.capacity_bytes;
      tier.make = [this, disk](TierIndex index, FamilyTable& families,
                               tier::TierListener* listener) -> Result<std::unique_ptr<tier::Tier>> {
        auto made = tier::disk::DiskTier::open(disk, disk_, sim_, families, sim_.random(), listener, index);
        if (!made.ok()) return made.status();
        return std::unique_ptr<tier::Tier>(std::move(made).value());
      };
    }
    options.tiers.push_back(std::move(tier));
  }
  if (shape_.seals) {
    // Uses another first key at each start, so that records sealed with an older key must be opened with it.
    const std::string one = "1 " + std::string(64, 'a') + "\n";
    const std::string two = "2 " + std::string(64, 'b') + "\n";
    options.seal_key_file = keys_.path() + "/keys";
    std::ofstream(options.seal_key_file) << (random_.below(2) == 0 ? one + two : two + one);
    EXPECT_EQ(chmod(options.seal_key_file.c_str(), 0600), 0);
  }
  return options;
}

void World::open() {
  storm_ = 0;
  disk_.set_capacity(UINT64_MAX);
  faults(false);
  Environment environment;
  environment.executor = &sim_;
  environment.files = &disk_;
  environment.random = &sim_.random();
  environment.log = &log_;
  const auto root = [this] { return "/tier" + std::to_string(seen.lost); };
  auto made = Manager::create(environment, options(root()));
  if (!made.ok()) {
    // The open refused a damaged superblock instead of guessing its content. The world continues in another directory.
    EXPECT_TRUE(faulty_) << made.status().message();
    ++seen.lost;
    made = Manager::create(environment, options(root()));
  }
  ASSERT_TRUE(made.ok()) << made.status().message();
  manager_ = std::move(made).value();
  open_namespaces();
  if (host_file_) check_found_again();
  if (follows_events_) events_ = std::make_unique<EventMirror>(*manager_);
  for (size_t i = 0; i < kEngines; ++i) attach(engines_[i], i);
  faults(faulty_);
}

std::string World::host_path() const { return hosts_.path() + "/host-" + std::to_string(host_number_); }

// Checks the blocks that a process found in the host file of the one before. However that ended, the blocks must be
// whole, and none may be there that it had dropped.
void World::check_found_again() {
  for (size_t n = 0; n < 2; ++n) EXPECT_GE(ns_[n]->epoch(), least_epoch_[n]) << "an epoch that has ended is back";
  std::vector<block::SlotInfo> infos;
  manager_->host().table().scan(0, infos, host_slots_ + 1);
  const bool look = random_.below(2) == 0;  // else the user of the blocks does
  for (const block::SlotInfo& info : infos) {
    EXPECT_EQ(info.state, block::SlotState::registered);
    const NamespaceId& ns = manager_->families().get(info.identity.family).ns;
    EXPECT_EQ(std::count(forgotten_.begin(), forgotten_.end(), ns), 0) << "a forgotten block is back";
    ++seen.recovered;
    if (!look || !manager_->host().table().acquire_weak(info.slot, info.generation)) continue;
    EXPECT_TRUE(manager_->host().trust(info.slot)) << "a block in the host file has other bytes than its head says";
    manager_->host().release({&info.slot, 1});
  }
  if (!forgotten_.empty()) ++seen.forgotten;
  forgotten_.clear();
}

void World::die_having_forgotten(std::vector<NamespaceId> ids) {
  forgotten_ = std::move(ids);
  die();
}

void World::open_namespaces() {
  for (size_t n = 0; n < 2; ++n) {
    NamespaceOptions who;
    who.model = n == 0 ? "a" : "b";
    if (n == 0) {
      // A stored block of all heads: 1 layer x 2 planes x 16 tokens x 2 heads x 32 x 2 bytes = kBlockBytes.
      auto geometry =
          layout::Geometry::make(16 / shape_.units, {layout::attention(1, 2, 32, layout::Element::bf16)}, shape_.units);
      ASSERT_TRUE(geometry.ok()) << geometry.status().message();
      who.geometry = std::make_shared<const layout::Geometry>(std::move(geometry).value());
    } else if (shape_.quota_slots != 0) {
      who.quota_bytes = shape_.quota_slots * manager_->host().arena().slot_bytes();
    }
    auto opened = manager_->namespaces().open(std::move(who));
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    ns_[n] = std::move(opened).value();
  }
}

void World::attach(Engine& engine, size_t which) {
  engine.busy = false;
  Part part;
  if (shape_.ranks && which < 2) part.shard = {0, 1, static_cast<uint16_t>(which), 1, 0};
  auto plan = ns_[0]->plan(part);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const uint64_t blocks = uint64_t{kKeys} * shape_.units;
  auto arrangement = layout::arrange(layout::Form::cross_nhd, *plan.value().shape, blocks,
                                     std::vector<layout::Tensor>{{engine.memory.data(), engine.memory.size()}});
  ASSERT_TRUE(arrangement.ok()) << arrangement.status().message();
  auto shaped = CachePart::shaped(std::move(plan).value(), std::move(arrangement).value());
  auto first = Cache::create(manager_->stack().keep(), ns_[0], {std::move(shaped).value()});
  ASSERT_TRUE(first.ok()) << first.status().message();
  engine.cache[0] = std::move(first).value();

  layout::PageTensor tensor;
  tensor.base = engine.memory.data();
  tensor.extent_bytes = engine.memory.size();
  tensor.block_stride = kBlockBytes;
  tensor.page_bytes = kBlockBytes;
  auto pages = layout::PageArrangement::make(kKeys, {tensor});
  auto opaque = CachePart::opaque(ns_[1]->plan({}).value(), std::move(pages).value(), 1);
  engine.cache[1] = Cache::create(manager_->stack().keep(), ns_[1], {std::move(opaque).value()}).value();
}

// The manager is closed with whatever is in flight; all of it ends, each operation once.
void World::shut_down() {
  bool done = false;
  manager_->shutdown([&done] { done = true; });
  while (!done && step()) {
  }
  EXPECT_TRUE(done) << "the manager did not close";
  EXPECT_LT(drain(), 10'000'000U);
  EXPECT_EQ(seen.completed, seen.submitted) << "operations were lost in a shutdown";
  ++seen.shutdowns;
  sim_.note("shutdown", seen.shutdowns);
  tally();
  drop();
}

void World::drop() {
  watched_.clear();
  pins_.clear();
  if (manager_ != nullptr) {
    for (Held& held : held_) manager_->host().release(held.slots);
  }
  held_.clear();
  waited_.clear();
  for (Engine& engine : engines_) {
    engine.cache[0] = engine.cache[1] = nullptr;
    engine.operation.reset();  // operations of a killed process cannot be cancelled
  }
  ns_[0] = ns_[1] = nullptr;
  manager_ = nullptr;
}

// The process is killed, or the power goes, and it starts again.
void World::die() {
  EXPECT_LE(seen.completed, seen.submitted);
  tally();
  if (host_file_) {
    const std::string was = host_path();
    ++host_number_;
    std::error_code failed;
    std::filesystem::copy_file(was, host_path(), failed);
    EXPECT_FALSE(failed) << failed.message();
    std::filesystem::remove(was, failed);
  }
  if (random_.below(2) == 0) {
    disk_.crash();
  } else {
    disk_.power_cut();
  }
  drop();
  sim_.drop_all();                  // notifications of its objects at their end have no receiver
  seen.completed = seen.submitted;  // their completions died with them
  ++seen.restarts;
  sim_.note("restart", seen.restarts);
  open();
}

}  // namespace kvbm::test
