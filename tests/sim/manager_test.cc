// The whole of blocks, tiers and manager on one thread from a seed, with faults, kills and power cuts.
//
// Invariants: a block that a load reports as loaded has exactly the bytes that were stored under its key and
// namespace; every operation completes exactly once; at idle nothing is held; a seed run twice gives the
// same log. KVBMTEST_SIM_SEEDS says how many seeds (default 150), KVBMTEST_LONG=1 makes it 5,000.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "codec/key.h"
#include "manager/load.h"
#include "manager/lookup.h"
#include "manager/manager.h"
#include "manager/move.h"
#include "manager/offload.h"
#include "manager/store.h"
#include "support/sim_disk.h"
#include "support/sim_executor.h"

// A killed process frees nothing: what a simulated one leaves behind (batches that keep their manager) is no leak.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

namespace kvbm::test {
namespace {

using namespace manager;  // NOLINT: the subject of this file

constexpr uint64_t kBlockBytes = 4096;
constexpr uint32_t kHostSlots = 40;
constexpr uint32_t kEngineBlocks = 24;  // of one engine
constexpr size_t kEngines = 3;
constexpr size_t kConversations = 10;

uint64_t seeds() {
  if (const char* text = std::getenv("KVBMTEST_SIM_SEEDS")) return std::strtoull(text, nullptr, 10);
  return std::getenv("KVBMTEST_LONG") != nullptr ? 5000 : 150;
}

// What a block's bytes must be: they follow from who it is, the namespace's epoch included, so that a block of an
// epoch that has ended would be seen.
void fill(std::byte* out, const NamespaceId& ns, uint64_t conversation, uint64_t index) {
  uint64_t name;
  std::memcpy(&name, ns.bytes.data(), sizeof name);
  SeededRandom random(name ^ (conversation * 1009 + index) * 0x9E3779B97F4A7C15ULL);
  random.fill({out, kBlockBytes});
}

constexpr int32_t kNotSaid = 12345;  // no status has this value

// One engine: its paged cache, and at most one operation at a time, as its memory allows.
struct Engine {
  std::vector<std::byte> memory = std::vector<std::byte>(kEngineBlocks * kBlockBytes);
  std::shared_ptr<Cache> cache[2];  // by namespace
  bool busy = false;
  std::weak_ptr<Operation> operation;
  std::vector<int32_t> status = std::vector<int32_t>(kEngineBlocks);
};

class World {
 public:
  explicit World(uint64_t seed, bool faulty) : sim(seed), disk(sim), random_(seed ^ 0x5EED), faulty_(faulty) { open(); }
  ~World() { close(); }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      const uint64_t what = random_.below(100);
      if (what < 30) store();
      else if (what < 62) load();
      else if (what < 67) move(random_.below(2) == 0);
      else if (what < 70) forget();
      else if (what < 73) pin();
      else if (what < 76) cancel();
      else if (what < 78) invalidate();
      else if (what < 79 && faulty_) die();
      for (uint64_t n = random_.below(40); n != 0 && sim.step(); --n) {
      }
    }
    settle();
  }

  // Everything that was begun ends, and nothing stays held.
  void settle() {
    faults(false);
    ASSERT_TRUE(sim.run() < 10'000'000);
    EXPECT_EQ(completed, submitted);
    EXPECT_EQ(get(manager->counters().operations), 0U);
    EXPECT_EQ(get(manager->counters().matches), 0U);
    pins_.clear();
    manager->unpin_owner(7);
    std::vector<block::SlotInfo> infos;
    manager->table().scan(0, infos, kHostSlots + 1);
    for (const block::SlotInfo& info : infos) {
      EXPECT_EQ(info.references, 0U) << "slot " << info.slot;
      EXPECT_EQ(info.pins, 0U) << "slot " << info.slot;
      // An erased parent keeps its slot until its resident children go.
      EXPECT_TRUE(!info.withdrawn || info.children != 0) << "slot " << info.slot;
    }
  }

  SimExecutor sim;
  SimDisk disk;
  std::shared_ptr<Manager> manager;
  uint64_t submitted = 0, completed = 0, loaded = 0, restarts = 0, lost = 0;

 private:
  void faults(bool on) {
    SimDisk::Faults f;
    if (on) {
      f.read_error = 0.01, f.write_error = 0.01, f.write_full = 0.005, f.short_read = 0.01, f.flip_on_read = 0.02;
      f.flip_at_rest = 0.01, f.misdirected_write = 0.005, f.lost_write = 0.005;
    }
    disk.faults = f;
  }

  void open() {
    faults(false);
    Environment environment;
    environment.executor = &sim;
    environment.files = &disk;
    environment.random = &sim.random();
    environment.log = &log_;
    Options options;
    options.host.block_bytes = kBlockBytes;
    options.host.capacity_bytes = 4096 + kHostSlots * (kBlockBytes + 320);
    options.host.huge_pages = false;
    TierOptions tier;
    tier.path = "/tier";
    tier.capacity_bytes = uint64_t{64} << 20;
    tier.admission = static_cast<AdmissionKind>(random_.below(4));
    options.tiers.push_back(tier);
    auto made = Manager::create(environment, options);
    if (!made.ok()) {
      // A damaged superblock is refused, never guessed at: begin again elsewhere.
      ++lost;
      options.tiers.clear();
      tier.path = "/tier" + std::to_string(lost);
      options.tiers.push_back(tier);
      made = Manager::create(environment, options);
    }
    ASSERT_TRUE(made.ok()) << made.status().message();
    manager = std::move(made).value();
    for (size_t n = 0; n < 2; ++n) {
      NamespaceOptions who;
      who.model = n == 0 ? "a" : "b";
      auto opened = manager->open_namespace(std::move(who));
      ASSERT_TRUE(opened.ok());
      ns_[n] = std::move(opened).value();
    }
    for (Engine& engine : engines_) attach(engine);
    faults(faulty_);
  }

  void attach(Engine& engine) {
    engine.busy = false;
    for (size_t n = 0; n < 2; ++n) {
      layout::PageTensor tensor;
      tensor.base = engine.memory.data();
      tensor.extent_bytes = engine.memory.size();
      tensor.block_stride = kBlockBytes;
      tensor.page_bytes = kBlockBytes;
      auto pages = layout::PageArrangement::make(kEngineBlocks, {tensor});
      auto part = CachePart::opaque(ns_[n]->plan({}).value(), std::move(pages).value(), 1);
      engine.cache[n] = Cache::create(manager, ns_[n], {std::move(part).value()}).value();
    }
  }

  void close() {
    if (manager == nullptr) return;
    bool done = false;
    manager->shutdown([&done] { done = true; });
    EXPECT_TRUE(sim.run_until([&done] { return done; }));
    drop();
  }

  void drop() {
    pins_.clear();
    for (Engine& engine : engines_) engine.cache[0] = engine.cache[1] = nullptr;
    ns_[0] = ns_[1] = nullptr;
    manager = nullptr;
  }

  // The process is killed, or the power goes, and it starts again.
  void die() {
    EXPECT_LE(completed, submitted);
    if (random_.below(2) == 0) {
      disk.crash();
    } else {
      disk.power_cut();
    }
    drop();
    completed = submitted;  // their completions died with them
    ++restarts;
    sim.note("restart", restarts);
    open();
  }

  std::vector<Key> keys(size_t n, uint64_t conversation, size_t count) {
    std::vector<uint32_t> tokens(count * 4);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i < 16 ? i : conversation * 977 + i);
    std::vector<Key> out(count);
    EXPECT_TRUE(codec::chained_keys(ns_[n]->id(), nullptr, tokens, 4, {}, out).ok());
    return out;
  }

  // The first four blocks are the same in every conversation: a shared prompt.
  static uint64_t owner(uint64_t conversation, size_t index) { return index < 4 ? 999 : conversation; }

  Engine* idle_engine() {
    Engine& engine = engines_[random_.below(kEngines)];
    return engine.busy ? nullptr : &engine;
  }

  uint64_t deadline() {
    return random_.below(4) == 0 ? sim.clock().now_ns() + random_.below(3'000'000) : kNever;
  }

  template <class Op, class Done>
  void start(Engine& engine, std::shared_ptr<Op> operation, Done done) {
    engine.busy = true;
    engine.operation = operation;
    ++submitted;
    operation->start([this, &engine, done, ended = std::make_shared<bool>(false)](const copy::Completion& completion) {
      EXPECT_FALSE(*ended) << "an operation completed twice";
      *ended = true;
      ++completed;
      engine.busy = false;
      sim.note("completed", completion.items_done);
      done(completion);
    });
  }

  void store() {
    Engine* engine = idle_engine();
    if (engine == nullptr) return;
    const size_t n = random_.below(2);
    const uint64_t conversation = random_.below(kConversations);
    const size_t count = 1 + random_.below(kEngineBlocks);
    StoreRequest request;
    request.cache = engine->cache[n];
    request.keys = keys(n, conversation, count);
    for (size_t i = 0; i < count; ++i) {
      request.block_ids.push_back(static_cast<uint32_t>(kEngineBlocks - 1 - i));
      fill(engine->memory.data() + request.block_ids.back() * kBlockBytes, ns_[n]->id(), owner(conversation, i), i);
    }
    request.deadline_ns = deadline();
    engine->status.assign(kEngineBlocks, kNotSaid);
    request.item_status = {engine->status.data(), count};
    start(*engine, std::make_shared<StoreOperation>(std::move(request)), [engine, count](const copy::Completion&) {
      for (size_t i = 0; i < count; ++i) EXPECT_NE(engine->status[i], kNotSaid);
    });
  }

  void load() {
    Engine* engine = idle_engine();
    if (engine == nullptr) return;
    const size_t n = random_.below(2);
    const uint64_t conversation = random_.below(kConversations);
    const std::vector<Key> wanted = keys(n, conversation, 1 + random_.below(kEngineBlocks));
    auto match = look_up(manager, ns_[n], engine->cache[n]->plans().value(), wanted, {});
    if (match == nullptr) return;
    LoadRequest request;
    request.cache = engine->cache[n];
    request.n_ids = match->hits();
    for (size_t i = 0; i < request.n_ids; ++i) request.block_ids.push_back(static_cast<uint32_t>(i));
    std::memset(engine->memory.data(), 0xEE, engine->memory.size());
    request.deadline_ns = deadline();
    request.keep_below = random_.below(4) == 0;
    engine->status.assign(kEngineBlocks, kNotSaid);
    request.item_status = {engine->status.data(), request.n_ids};
    const size_t count = request.n_ids;
    const NamespaceId asked = ns_[n]->id();
    request.match = std::move(match);
    start(*engine, std::make_shared<LoadOperation>(std::move(request)),
          [this, engine, asked, conversation, count](const copy::Completion&) {
            for (size_t i = 0; i < count; ++i) {
              EXPECT_NE(engine->status[i], kNotSaid);
              if (engine->status[i] != static_cast<int32_t>(Code::ok)) continue;
              std::byte expected[kBlockBytes];
              fill(expected, asked, owner(conversation, i), i);
              ++loaded;
              EXPECT_EQ(std::memcmp(expected, engine->memory.data() + i * kBlockBytes, kBlockBytes), 0)
                  << "a wrong block came back: conversation " << conversation << " index " << i;
            }
          });
  }

  void move(bool up) {
    Engine* engine = idle_engine();
    if (engine == nullptr) return;
    const size_t n = random_.below(2);
    const std::vector<Key> some = keys(n, random_.below(kConversations), 1 + random_.below(kEngineBlocks));
    const auto plan = ns_[n]->plan({}).value();
    if (up) {
      LookupRequest each;
      each.mode = LookupMode::each;
      auto match = look_up(manager, ns_[n], {&plan, 1}, some, each);
      start(*engine, std::make_shared<PrefetchOperation>(manager, std::move(match), some.size(), deadline()),
            [](const copy::Completion&) {});
    } else {
      start(*engine, std::make_shared<OffloadOperation>(manager, TierIndex{1}, plan.family, some, deadline()),
            [](const copy::Completion&) {});
    }
  }

  void forget() {
    const size_t n = random_.below(2);
    const auto some = keys(n, random_.below(kConversations), 1 + random_.below(kEngineBlocks));
    if (random_.below(4) == 0) {
      EXPECT_TRUE(manager->reset(*ns_[n]).ok() || faulty_);
    } else {
      manager->drop(ns_[n]->plan({}).value().family, some);
    }
  }

  void pin() {
    const size_t n = random_.below(2);
    const auto some = keys(n, random_.below(kConversations), 6);
    block::PinId id = 0;
    size_t count = 0;
    const uint64_t until = random_.below(2) == 0 ? kNever : sim.clock().now_ns() + random_.below(5'000'000);
    if (manager->pin(ns_[n]->plan({}).value().family, some, 7, until, id, count) == Code::ok && id != 0) pins_.push_back(id);
    if (pins_.size() > 2) {
      [[maybe_unused]] const Code ended = manager->unpin(pins_.front());
      pins_.erase(pins_.begin());
    }
  }

  void cancel() {
    if (const auto operation = engines_[random_.below(kEngines)].operation.lock()) operation->cancel();
  }

  void invalidate() {
    const size_t n = random_.below(2);
    const NamespaceId before = ns_[n]->id();
    const Status raised = manager->invalidate(*ns_[n]);
    if (raised.ok()) {
      EXPECT_NE(before, ns_[n]->id());
    }
  }

  Log log_;
  SeededRandom random_;
  const bool faulty_;
  std::shared_ptr<Namespace> ns_[2];
  Engine engines_[kEngines];
  std::vector<block::PinId> pins_;
};

TEST(ManagerSim, never_gives_a_wrong_block_and_completes_every_operation) {
  uint64_t loaded = 0;
  uint64_t restarts = 0;
  uint64_t operations = 0;
  const uint64_t n = seeds();
  for (uint64_t seed = 1; seed <= n && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, seed % 3 != 0);
    if (::testing::Test::HasFatalFailure()) return;
    world.run(250);
    loaded += world.loaded;
    restarts += world.restarts;
    operations += world.submitted;
  }
  std::printf("%llu seeds: %llu operations, %llu restarts, %llu blocks loaded and compared\n",
              static_cast<unsigned long long>(n), static_cast<unsigned long long>(operations),
              static_cast<unsigned long long>(restarts), static_cast<unsigned long long>(loaded));
  EXPECT_GT(loaded, n * 10);
}

TEST(ManagerSim, a_seed_run_twice_gives_the_same_log) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    uint64_t hash[2];
    for (uint64_t& h : hash) {
      World world(seed, true);
      world.run(150);
      h = world.sim.log_hash();
    }
    EXPECT_EQ(hash[0], hash[1]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kvbm::test
