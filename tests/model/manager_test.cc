// The manager under threads against a naive reference: what was never stored is never found, and what is found is
// something that was stored there. Few keys, a host and a disk so small that both evict all the time.
//
// The schedule is the machine's, so a seed does not repeat a run; it says which operations each thread makes.
// KVBMTEST_MODEL_SEED sets it (default: 1), KVBMTEST_MODEL_OPERATIONS how many a thread makes (default: 8,000).
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "base/io/os_file.h"
#include "base/thread/thread_executor.h"
#include "codec/record/key.h"
#include "manager/lower/offload.h"
#include "manager/manager.h"
#include "manager/operation/load.h"
#include "manager/operation/lookup.h"
#include "manager/operation/move.h"
#include "manager/operation/store.h"
#include "support/counts.h"
#include "support/temp_dir.h"
#include "tier/disk/disk_tier.h"
#include "tier/disk/superblock.h"

namespace kvbm::manager::manager_test {
namespace {

constexpr uint64_t kBlockBytes = 4096;
constexpr uint32_t kHostSlots = 48;
constexpr size_t kThreads = 4;
constexpr size_t kLength = 8;           // blocks of a conversation
constexpr uint64_t kConversations = 6;  // shared by all threads; a thread's own are kOwn + thread
constexpr uint64_t kOwn = 100;

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Identity of a block, stored at its beginning. The rest of the bytes follows from it.
struct Label {
  NamespaceId ns;
  uint64_t block = 0;  // conversation * kLength + index
  uint64_t version = 0;
};
static_assert(sizeof(Label) == 32);

void write_block(std::byte* out, const Label& label) {
  std::memcpy(out, &label, sizeof label);
  SeededRandom random(label.block * 1000003 + label.version);
  random.fill({out + sizeof label, kBlockBytes - sizeof label});
}

bool whole(const std::byte* block, const Label& label) {
  std::byte expected[kBlockBytes];
  write_block(expected, label);
  return std::memcmp(block, expected, kBlockBytes) == 0;
}

// Everything that any thread began to store, by the namespace's id of that epoch. A block that is not in it must not
// be found.
class Reference {
 public:
  void storing(const Label& label) {
    MutexLock lock(mutex_);
    stored_[{label.ns, label.block}].insert(label.version);
  }
  bool ever(const NamespaceId& ns, uint64_t block) {
    MutexLock lock(mutex_);
    return stored_.contains({ns, block});
  }
  bool ever(const Label& label) {
    MutexLock lock(mutex_);
    const auto it = stored_.find({label.ns, label.block});
    return it != stored_.end() && it->second.contains(label.version);
  }

 private:
  Mutex mutex_;
  std::map<std::pair<NamespaceId, uint64_t>, std::set<uint64_t>> stored_ KVBM_GUARDED_BY(mutex_);
};

// An event that happens once, on another thread.
class Event {
 public:
  void set() {
    MutexLock lock(mutex_);
    set_ = true;
    arrived_.notify_all();
  }
  void wait() {
    MutexLock lock(mutex_);
    while (!set_) arrived_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  std::condition_variable_any arrived_;
  bool set_ KVBM_GUARDED_BY(mutex_) = false;
};

struct Process {
  Log log;
  SystemRandom random;
  std::unique_ptr<FileSystem> files;  // outlives the executor: its last tasks may still close files
  std::unique_ptr<ThreadExecutor> executor;
  std::shared_ptr<Manager> manager;
  std::shared_ptr<Namespace> ns[2];

  // host_file: the host tier is in a file beside the disk, and found again there.
  void open(const std::string& path, bool host_file) {
    auto threads = ThreadExecutor::create("model", 2);
    ASSERT_TRUE(threads.ok());
    executor = std::move(threads).value();
    auto made_files = make_os_file_system(*executor);
    ASSERT_TRUE(made_files.ok()) << made_files.status().message();
    files = std::move(made_files).value();
    Environment environment;
    environment.executor = executor.get();
    environment.files = files.get();
    environment.random = &random;
    environment.log = &log;
    Options options;
    options.host.block_bytes = kBlockBytes;
    options.host.capacity_bytes = 4096 + kHostSlots * (kBlockBytes + tier::HostArena::head_stride(kBlockBytes));
    options.host.huge_pages = false;
    if (host_file) {
      options.host.file = path + "-host";
      options.host.capacity_bytes += kHostSlots * sizeof(uint64_t);
    }
    options.tiers.push_back(disk_of(path, 8));
    // The second disk takes blocks that the first one evicts.
    options.tiers.push_back(disk_of(path + "-2", 8));
    options.tiers.back().admission = AdmissionKind::on_eviction;
    auto made = Manager::create(environment, std::move(options));
    ASSERT_TRUE(made.ok()) << made.status().message();
    manager = std::move(made).value();
    for (size_t n = 0; n < 2; ++n) {
      NamespaceOptions who;
      who.model = n == 0 ? "a" : "b";
      if (n == 1) who.quota_bytes = 24 * manager->host().arena().slot_bytes();
      ns[n] = manager->namespaces().open(std::move(who)).value();
    }
  }

  // Returns a disk of so many segments.
  TierOptions disk_of(const std::string& path, uint32_t segments) {
    TierOptions tier;
    tier::disk::DiskTierOptions disk;
    disk.path = path;
    disk.segment_bytes = 64 << 10;
    disk.capacity_bytes = tier::disk::kSuperblockBytes + 4096 + segments * disk.segment_bytes;
    tier.capacity_bytes = disk.capacity_bytes;
    tier.make = [this, disk](TierIndex index, FamilyTable& families,
                             tier::TierListener* listener) -> Result<std::unique_ptr<tier::Tier>> {
      auto made = tier::disk::DiskTier::open(disk, *files, *executor, families, random, listener, index);
      if (!made.ok()) return made.status();
      return std::unique_ptr<tier::Tier>(std::move(made).value());
    };
    return tier;
  }

  void close() {
    Event closed;
    manager->shutdown([&closed] { closed.set(); });
    closed.wait();
    ns[0] = ns[1] = nullptr;
    manager = nullptr;
    executor = nullptr;  // joins
    files = nullptr;
  }
};

class Worker {
 public:
  Worker(Process& process, Reference& reference, size_t thread, uint64_t seed)
      : process_(process),
        manager_(*process.manager),
        reference_(reference),
        thread_(thread),
        random_(seed * 64 + thread) {
    layout::PageTensor tensor;
    tensor.base = memory_.data();
    tensor.extent_bytes = memory_.size();
    tensor.block_stride = kBlockBytes;
    tensor.page_bytes = kBlockBytes;
    for (size_t n = 0; n < 2; ++n) {
      auto pages = layout::PageArrangement::make(kLength, {tensor});
      auto part = CachePart::opaque(process.ns[n]->plan({}).value(), std::move(pages).value(), 1);
      cache_[n] = Cache::create(process.manager->stack().keep(), process.ns[n], {std::move(part).value()}).value();
    }
  }

  void run(uint64_t operations) {
    for (uint64_t i = 0; i < operations && !::testing::Test::HasFailure(); ++i) {
      choose();
      const uint64_t what = random_.below(100);
      if (what < 34)
        store();
      else if (what < 70)
        load();
      else if (what < 78)
        drop();
      else if (what < 84)
        prefetch();
      else if (what < 88)
        offload();
      else if (what < 94)
        pin();
      else if (what < 97)
        hint();
      else if (random_.below(16) == 0)
        reset();
      else if (random_.below(32) == 0)
        invalidate();
      else
        look_around();
    }
  }

  // Checks that every block left by the last process was stored before.
  void check_all() {
    for (n_ = 0; n_ < 2; ++n_) {
      for (uint64_t c = 0; c < kOwn + kThreads; c = c + 1 == kConversations ? kOwn : c + 1) {
        conversation_ = c;
        first_ = 0;
        count_ = kLength;
        id_ = process_.ns[n_]->id();
        own_ = false;
        load();
      }
    }
  }

  uint64_t loaded = 0;
  uint64_t found = 0;

 private:
  // Draws a piece of a conversation for the next operation.
  void choose() {
    n_ = random_.below(2);
    own_ = random_.below(4) == 0;
    conversation_ = own_ ? kOwn + thread_ : random_.below(kConversations);
    first_ = random_.below(kLength);
    count_ = 1 + random_.below(kLength - first_);
    id_ = process_.ns[n_]->id();
  }

  [[nodiscard]] std::vector<Key> keys() const {
    std::vector<uint32_t> tokens(kLength);
    for (size_t i = 0; i < kLength; ++i) tokens[i] = static_cast<uint32_t>(conversation_ * kLength + i);
    std::vector<Key> all(kLength);
    EXPECT_TRUE(codec::chained_keys(id_, nullptr, tokens, 1, {}, all).ok());
    return {all.begin() + static_cast<ptrdiff_t>(first_), all.begin() + static_cast<ptrdiff_t>(first_ + count_)};
  }
  [[nodiscard]] uint64_t block(size_t i) const { return conversation_ * kLength + first_ + i; }
  [[nodiscard]] FamilyId family() const { return process_.ns[n_]->plan({}).value().family; }
  [[nodiscard]] uint64_t deadline() {
    return random_.below(16) == 0 ? process_.executor->clock().now_ns() + random_.below(200'000) : kNever;
  }

  template <class Op>
  copy::Completion finish(std::shared_ptr<Op> operation) {
    Event over;
    copy::Completion result;
    const auto done = [&](const copy::Completion& completion) {
      result = completion;
      over.set();
    };
    if (random_.below(2) == 0) {
      operation->start_here(done);
    } else {
      operation->start(done);
      if (random_.below(16) == 0) operation->cancel();
    }
    over.wait();
    return result;
  }

  void store() {
    StoreRequest request;
    request.cache = cache_[n_];
    request.keys = keys();
    for (size_t i = 0; i < count_; ++i) {
      const Label label{id_, block(i), ++version_ * kThreads + thread_};
      reference_.storing(label);
      write_block(memory_.data() + i * kBlockBytes, label);
      request.block_ids.push_back(static_cast<uint32_t>(i));
      if (own_) forgotten_.erase({id_, block(i)});
    }
    request.deadline_ns = deadline();
    finish(std::make_shared<StoreOperation>(std::move(request)));
  }

  void load() {
    LookupRequest how;
    how.mode = random_.below(2) == 0 ? LookupMode::prefix : LookupMode::each;
    const PartPlan plan = process_.ns[n_]->plan({}).value();
    auto match = look_up(process_.manager->stack().keep(), process_.ns[n_], {&plan, 1}, keys(), how);
    if (match == nullptr) return;
    LoadRequest request;
    request.cache = cache_[n_];
    request.n_ids = how.mode == LookupMode::prefix ? match->hits() : count_;
    std::vector<bool> there;
    for (size_t i = 0; i < request.n_ids; ++i) {
      request.block_ids.push_back(static_cast<uint32_t>(i));
      there.push_back(match->tier_of(0, i) != kNoTier);
      if (!there[i]) continue;
      ++found;
      EXPECT_TRUE(reference_.ever(id_, block(i))) << "found what was never stored: block " << block(i);
      EXPECT_FALSE(own_ && forgotten_.contains({id_, block(i)})) << "found what was dropped: block " << block(i);
    }
    std::vector<int32_t> status(request.n_ids, 1);
    request.item_status = status;
    request.keep_below = random_.below(4) == 0;
    // Compute costs from far below any load's to far above.
    if (random_.below(4) == 0) request.compute_block_ns = uint64_t{1} << random_.below(30);
    request.deadline_ns = deadline();
    request.match = std::move(match);
    finish(std::make_shared<LoadOperation>(std::move(request)));
    for (size_t i = 0; i < status.size(); ++i) {
      EXPECT_NE(status[i], 1);
      if (status[i] != static_cast<int32_t>(Code::ok)) continue;
      EXPECT_TRUE(there[i]);
      check_block(memory_.data() + i * kBlockBytes, block(i));
    }
  }

  void check_block(const std::byte* at, uint64_t expected) {
    Label label;
    std::memcpy(&label, at, sizeof label);
    ++loaded;
    EXPECT_EQ(label.ns, id_) << "another namespace's or epoch's block";
    EXPECT_EQ(label.block, expected) << "another block";
    EXPECT_TRUE(reference_.ever(label)) << "a version that nobody stored: " << label.version;
    EXPECT_TRUE(whole(at, label)) << "a torn block " << label.block;
  }

  void drop() {
    const std::vector<Key> some = keys();
    manager_.stack().drop(family(), some);
    // Only this thread stores its own blocks, so they stay absent until it stores them again.
    if (own_) {
      for (size_t i = 0; i < count_; ++i) forgotten_.insert({id_, block(i)});
    }
  }

  void prefetch() {
    LookupRequest each;
    each.mode = LookupMode::each;
    const PartPlan plan = process_.ns[n_]->plan({}).value();
    auto match = look_up(process_.manager->stack().keep(), process_.ns[n_], {&plan, 1}, keys(), each);
    finish(std::make_shared<PrefetchOperation>(process_.manager->stack().keep(), std::move(match), count_, deadline()));
  }

  void offload() {
    finish(std::make_shared<OffloadOperation>(process_.manager->stack().keep(), TierIndex{1}, family(), keys(),
                                              deadline()));
  }

  void pin() {
    block::PinId id = 0;
    size_t count = 0;
    const Code code = manager_.pins().pin(family(), keys(), thread_, kNever, id, count);
    EXPECT_TRUE(code == Code::ok || code == Code::no_room);
    if (id == 0) return;
    load();  // while they are pinned
    EXPECT_EQ(manager_.pins().unpin(id), Code::ok);
  }

  void reset() { EXPECT_TRUE(manager_.namespaces().reset(*process_.ns[n_]).ok()); }

  void invalidate() { EXPECT_TRUE(manager_.namespaces().invalidate(*process_.ns[n_]).ok()); }

  void hint() { manager_.stack().hint(family(), keys(), static_cast<uint8_t>(random_.below(4))); }

  void look_around() {
    std::vector<block::SlotInfo> infos;
    manager_.host().table().scan(0, infos, kHostSlots);
    EXPECT_LE(infos.size(), kHostSlots);
    for (TierIndex tier = 1; tier <= 2; ++tier) {
      const tier::TierStats stats = manager_.lower().tier(tier).stats();
      EXPECT_LE(stats.used_bytes, stats.capacity_bytes);
    }
  }

  Process& process_;
  Manager& manager_;
  Reference& reference_;
  const size_t thread_;
  SeededRandom random_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kLength * kBlockBytes);
  std::shared_ptr<Cache> cache_[2];
  std::set<std::pair<NamespaceId, uint64_t>> forgotten_;
  uint64_t version_ = 0;
  size_t n_ = 0;
  bool own_ = false;
  uint64_t conversation_ = 0;
  size_t first_ = 0;
  size_t count_ = 0;
  NamespaceId id_;
};

void nothing_is_held(Process& process) {
  Event idle;
  process.manager->lower().flush([&idle] { idle.set(); });
  idle.wait();
  EXPECT_EQ(get(process.manager->counters().operations), 0U);
  EXPECT_EQ(process.manager->counters().matches(), 0U);
  EXPECT_EQ(get(process.manager->counters().verify_failures), 0U);
  std::vector<block::SlotInfo> infos;
  process.manager->host().table().scan(0, infos, kHostSlots + 1);
  for (const block::SlotInfo& info : infos) EXPECT_EQ(info.pins, 0U) << "slot " << info.slot;
}

void find_what_was_stored_and_nothing_else(bool host_file) {
  const uint64_t seed = number("KVBMTEST_MODEL_SEED", 1);
  const uint64_t operations = number("KVBMTEST_MODEL_OPERATIONS", 8000);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  SCOPED_TRACE("KVBMTEST_MODEL_SEED=" + std::to_string(seed));
  test::TempDir directory;
  ASSERT_FALSE(directory.path().empty());
  const std::string path = directory.path() + "/tier";
  Reference reference;
  uint64_t loaded = 0;
  Process process;
  process.open(path, host_file);
  if (::testing::Test::HasFatalFailure()) return;
  {
    std::vector<std::unique_ptr<Worker>> workers;
    for (size_t t = 0; t < kThreads; ++t) workers.push_back(std::make_unique<Worker>(process, reference, t, seed));
    std::vector<std::thread> threads;
    for (auto& worker : workers) threads.emplace_back([&worker, operations] { worker->run(operations); });
    for (std::thread& thread : threads) thread.join();
    for (auto& worker : workers) loaded += worker->loaded;
  }
  nothing_is_held(process);
  const TierCounters& disk = process.manager->counters().tiers[1];
  const TierCounters& second = process.manager->counters().tiers[2];
  kvbm::test::counted(loaded, "blocks compared with the model");
  std::printf(
      "%llu blocks loaded and compared, %llu stored below, %llu loaded from there, %llu reclaimed, "
      "%llu moved on, %llu loaded from there\n",
      static_cast<unsigned long long>(loaded), static_cast<unsigned long long>(get(disk.stores)),
      static_cast<unsigned long long>(get(disk.loads)), static_cast<unsigned long long>(get(disk.evictions)),
      static_cast<unsigned long long>(get(second.stores)), static_cast<unsigned long long>(get(second.loads)));
  EXPECT_GT(loaded, operations / 8);  // how many is a matter of how busy the machine is
  if (operations >= 8000) {
    EXPECT_GT(get(disk.loads), 0U);
    EXPECT_GT(get(disk.evictions), 0U);
    EXPECT_GT(get(second.stores), 0U);
  }
  process.close();
  process.open(path, host_file);
  if (::testing::Test::HasFatalFailure()) return;
  {
    const bool recovered = process.manager->host().table().counters().registered != 0;
    EXPECT_EQ(recovered, host_file);
    Worker later(process, reference, kThreads, seed);
    later.check_all();
    EXPECT_GT(later.found, 0U);
    EXPECT_TRUE(process.manager->stack().erase_all().ok());
    later.found = 0;
    later.check_all();
    EXPECT_EQ(later.found, 0U) << "found after everything was forgotten";
  }
  process.close();
  process.open(path, host_file);
  if (::testing::Test::HasFatalFailure()) return;
  {
    Worker last(process, reference, kThreads, seed);
    last.check_all();
    EXPECT_EQ(last.found, 0U) << "found after everything was forgotten, by the next process";
  }
  process.close();
}

TEST(ManagerModel, threads_find_what_was_stored_and_nothing_else) { find_what_was_stored_and_nothing_else(false); }

TEST(ManagerModel, threads_over_a_host_file_find_what_was_stored_and_nothing_else) {
  find_what_was_stored_and_nothing_else(true);
}

}  // namespace
}  // namespace kvbm::manager::manager_test
