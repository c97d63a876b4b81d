// Every pair of calls of the C interface on the same holds at the same time. No call revives a hold that another has
// ended, no two unrelated holds are on one slot, and no reference is lost or released twice.
//
// Two threads begin a call each together, again and again. The machine decides how far they overlap, so one round
// proves little and all of them together much: model.hold_interleavings_test tries every order of a smaller set.
// KVBMTEST_HOLD_ROUNDS is the number of rounds of each pair (default 30).
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "kvbm.h"
#include "support/counts.h"

namespace kvbm::model::holds_test {
namespace {

constexpr size_t kBatch = 48;  // of each kind
// Number of times that calls which allow repeated holds name the first one. The call then resolves holds for a while
// before it uses the last ones.
constexpr size_t kTimes = 1000;
constexpr size_t kBlockBytes = 4096;
constexpr size_t kSpare = 16;
constexpr uint64_t kOwner = 7;

// Returns the label in the first bytes of a block, which identifies it.
uint64_t label_of(const kvbm_view_t& view) {
  uint64_t label = 0;
  std::memcpy(&label, view.data, sizeof label);
  return label;
}

struct Held {
  kvbm_block_t value = 0;
  uint64_t label = 0;
};

// Results of the calls of a round. Only the thread that made them uses them until the round is over.
struct Made {
  std::vector<Held> holds;
  std::vector<Held> weak;
  std::vector<kvbm_pin_t> pins;
  size_t unpinned = 0;
  std::vector<kvbm_block_t> out = std::vector<kvbm_block_t>(kTimes + kBatch);
  std::vector<kvbm_view_t> views = std::vector<kvbm_view_t>(kTimes + kBatch);
  std::vector<uint8_t> memory = std::vector<uint8_t>(kBatch * kBlockBytes);  // an engine's
  kvbm_cache_t* cache = nullptr;
};

struct Kind {
  std::vector<kvbm_block_t> values;
  std::vector<uint64_t> labels;
};

class World {
 public:
  World() {
    kvbm_context_options_t context;
    kvbm_context_options_init(&context, sizeof context);
    context.threads = 1;
    const kvbm_setting_t settings[] = {{"host.huge_pages", "off"}};
    context.settings = settings;
    context.n_settings = std::size(settings);
    EXPECT_EQ(kvbm_context_create(&context, &context_, nullptr), KVBM_OK);
    kvbm_manager_options_t options;
    kvbm_manager_options_init(&options, sizeof options);
    options.block_bytes = kBlockBytes;
    options.host_capacity_bytes = 4096 + (4 * kBatch + kSpare) * (kBlockBytes + 384);
    EXPECT_EQ(kvbm_manager_create(context_, &options, &manager_, nullptr), KVBM_OK);
    kvbm_namespace_options_t who;
    kvbm_namespace_options_init(&who, sizeof who);
    who.model = "m";
    EXPECT_EQ(kvbm_namespace_open(manager_, &who, &ns_, nullptr), KVBM_OK);
    slots_ = take_all().size();
    release(ballast_);
    ballast_.clear();
    for (Made& made : made_) made.cache = attach(made);
  }
  ~World() {
    for (Made& made : made_) kvbm_cache_release(made.cache);
    kvbm_namespace_release(ns_);
    kvbm_manager_release(manager_);
    kvbm_context_release(context_);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Blocks in every state, and holds of every kind on them. Nothing is free, and nothing can go but what is released.
  void begin(size_t target) {
    partial_ = allocate();
    complete_ = allocate();
    complete(complete_);
    reading_ = allocate();
    complete(reading_);
    keys_ = keys();
    late_keys_ = keys();
    EXPECT_EQ(kvbm_manager_register(manager_, ns_, reading_.values.data(), keys_.data(), kBatch, nullptr), KVBM_OK);
    weak_.values.resize(kBatch);
    weak_.labels = reading_.labels;
    EXPECT_EQ(kvbm_block_downgrade(manager_, reading_.values.data(), kBatch, weak_.values.data()), KVBM_OK);
    size_t n = 0;
    EXPECT_EQ(kvbm_cache_lookup(made_[0].cache, keys_.data(), kBatch, nullptr, &match_, &n), KVBM_OK);
    EXPECT_EQ(n, kBatch);
    if (target != 2) {  // else they must be evictable when they are released
      EXPECT_EQ(kvbm_manager_pin(manager_, ns_, nullptr, keys_.data(), kBatch, kOwner, KVBM_FOREVER, &pin_, &n),
                KVBM_OK);
    } else {
      kvbm_match_release(match_);
      match_ = nullptr;
    }
    take_all();
    target_ = std::array{&partial_, &complete_, &reading_, &weak_}[target];
    many_.assign(kTimes, target_->values[0]);
    many_.insert(many_.end(), target_->values.begin(), target_->values.end());
  }

  // Verifies, after both calls, that each hold names the block that it was given for, and that no slot has two owners.
  void end() {
    std::vector<Held> holds;
    std::vector<Held> weak;
    gather(holds, weak);
    std::map<uint64_t, uint64_t> label_in;  // by slot
    look(holds, label_in);
    for (const Held& w : weak) upgrade(w);
    // A newly allocated slot has no other owner.
    std::vector<kvbm_block_t> fresh = take_all();
    for (const kvbm_block_t value : fresh) {
      kvbm_view_t view{};
      EXPECT_EQ(kvbm_block_view(manager_, &value, 1, &view), KVBM_OK);
      EXPECT_TRUE(label_in.emplace(view.slot, 0).second) << "a slot has two owners";
      std::memset(view.data, 0xFF, sizeof(uint64_t));
    }
    look(holds, label_in);
    for (const Held& w : weak) upgrade(w);
    finish(holds, weak);
  }

  // No reference was released more often than it was taken.
  void check_counts() {
    std::vector<char> text(1 << 17);
    size_t needed = 0;
    EXPECT_EQ(kvbm_manager_metrics(manager_, text.data(), text.size(), &needed), KVBM_OK);
    EXPECT_NE(std::strstr(text.data(), "\nkvbm_reference_underflows_total 0\n"), nullptr);
  }

  // ---- the calls; each on what begin() made ----
  using Call = void (World::*)(Made&);

  void clone(Made& made) {
    std::vector<kvbm_block_t>& out = made.out;
    if (expected(kvbm_block_clone(manager_, many_.data(), many_.size(), out.data())) == KVBM_OK) keep(made.holds, out);
  }
  void downgrade(Made& made) {
    std::vector<kvbm_block_t>& out = made.out;
    if (expected(kvbm_block_downgrade(manager_, many_.data(), many_.size(), out.data())) == KVBM_OK)
      keep(made.weak, out);
  }
  void upgrade(Made& made) {
    std::vector<kvbm_block_t>& out = made.out;
    if (expected(kvbm_block_upgrade(manager_, many_.data(), many_.size(), out.data())) == KVBM_OK)
      keep(made.holds, out);
  }
  void complete(Made&) { expected(kvbm_manager_complete(manager_, target(), kBatch, nullptr)); }
  void enroll(Made& made) {
    std::vector<kvbm_block_t> inout(target_->values);
    const kvbm_status_t got = kvbm_manager_register(manager_, ns_, inout.data(), late_keys_.data(), kBatch, nullptr);
    if (expected(got) == KVBM_OK) {
      keep(made.holds, inout);
    } else {
      EXPECT_EQ(inout, target_->values);
    }
  }
  void view(Made& made) { expected(kvbm_block_view(manager_, many_.data(), many_.size(), made.views.data())); }
  void release(Made&) { expected(kvbm_block_release(manager_, target(), kBatch)); }
  // Releases the holds one at a time, from the end.
  void release_each(Made&) {
    for (size_t i = kBatch; i-- > 0;) expected(kvbm_block_release(manager_, target() + i, 1));
  }
  // Releases one block at a time and stores another in its place.
  void replace(Made& made) {
    for (size_t i = kBatch; i-- > 0;) {
      expected(kvbm_block_release(manager_, target() + i, 1));
      Held held{0, next_label_.fetch_add(1)};
      if (kvbm_manager_allocate(manager_, ns_, 1, &held.value, nullptr, 0, nullptr) != KVBM_OK) continue;
      write(held);
      kvbm_key_t key = new_key(held.label);
      EXPECT_EQ(kvbm_manager_complete(manager_, &held.value, 1, nullptr), KVBM_OK);
      EXPECT_EQ(kvbm_manager_register(manager_, ns_, &held.value, &key, 1, nullptr), KVBM_OK);
      made.holds.push_back(held);
    }
  }
  // Takes a reference to each block for a moment, and ends it.
  void borrow(Made&) {
    for (size_t i = 0; i < kBatch; ++i) {
      Held held{0, next_label_.fetch_add(1)};
      if (kvbm_manager_allocate(manager_, ns_, 1, &held.value, nullptr, 0, nullptr) != KVBM_OK) continue;
      write(held);
      kvbm_view_t view{};
      EXPECT_EQ(kvbm_block_view(manager_, &held.value, 1, &view), KVBM_OK);
      EXPECT_EQ(label_of(view), held.label) << "somebody else wrote there";
      EXPECT_EQ(kvbm_block_release(manager_, &held.value, 1), KVBM_OK);
    }
  }
  void pin(Made& made) {
    kvbm_pin_t pin = 0;
    size_t n = 0;
    const kvbm_status_t got =
        kvbm_manager_pin(manager_, ns_, nullptr, keys_.data(), kBatch, kOwner, KVBM_FOREVER, &pin, &n);
    EXPECT_EQ(got, KVBM_OK);
    if (pin != 0) made.pins.push_back(pin);
  }
  void unpin(Made& made) {
    if (pin_ != 0) made.unpinned += expected(kvbm_manager_unpin(manager_, pin_)) == KVBM_OK ? 1 : 0;
  }
  void unpin_owner(Made&) { EXPECT_EQ(kvbm_manager_unpin_owner(manager_, kOwner, nullptr), KVBM_OK); }
  void take_match(Made& made) {
    std::vector<kvbm_block_t> out(kBatch);
    if (match_ == nullptr) return;
    EXPECT_EQ(kvbm_match_blocks(match_, 0, 0, kBatch, out.data()), KVBM_OK);
    for (size_t i = 0; i < kBatch; ++i) {
      if (out[i] != 0) made.holds.push_back({out[i], reading_.labels[i]});
    }
  }
  void load(Made& made) {
    kvbm_match_t* match = match_;
    size_t n = 0;
    if (match == nullptr) {
      EXPECT_EQ(kvbm_cache_lookup(made.cache, keys_.data(), kBatch, nullptr, &match, &n), KVBM_OK);
    } else {
      n = kBatch;
    }
    std::vector<uint32_t> ids(n);
    for (size_t i = 0; i < n; ++i) ids[i] = static_cast<uint32_t>(i);
    if (n != 0) {
      EXPECT_EQ(kvbm_cache_load(made.cache, match, ids.data(), n, nullptr, nullptr, 0), KVBM_OK);
    }
    for (size_t i = 0; i < n; ++i) {
      uint64_t label = 0;
      std::memcpy(&label, made.memory.data() + i * kBlockBytes, sizeof label);
      EXPECT_EQ(label, reading_.labels[i]) << "another block was loaded";
    }
    if (match != match_) kvbm_match_release(match);
  }
  void look_up(Made&) {
    kvbm_match_t* match = nullptr;
    size_t n = 0;
    EXPECT_EQ(kvbm_manager_lookup(manager_, ns_, keys_.data(), kBatch, nullptr, &match, &n), KVBM_OK);
    kvbm_match_release(match);
  }
  void drop(Made&) { EXPECT_EQ(kvbm_manager_drop(manager_, ns_, nullptr, keys_.data(), kBatch, nullptr), KVBM_OK); }

  Made& made(size_t thread) { return made_[thread]; }

 private:
  [[nodiscard]] const kvbm_block_t* target() const { return target_->values.data(); }

  // Returns the status if a call may return it for holds that end meanwhile or are of another kind; otherwise fails the
  // test.
  static kvbm_status_t expected(kvbm_status_t got) {
    EXPECT_TRUE(got == KVBM_OK || got == KVBM_ERR_STALE || got == KVBM_ERR_STATE) << kvbm_status_name(got);
    return got;
  }
  void keep(std::vector<Held>& to, const std::vector<kvbm_block_t>& values) {
    const size_t again = values.size() - kBatch;
    std::vector<kvbm_block_t> others(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(again));
    others.erase(std::remove(others.begin(), others.end(), kvbm_block_t{0}), others.end());
    release(others);
    for (size_t i = 0; i < kBatch; ++i) {
      if (values[again + i] != 0) to.push_back({values[again + i], target_->labels[i]});
    }
  }

  kvbm_cache_t* attach(Made& made) {
    kvbm_tensor_t tensor{made.memory.data(), made.memory.size(), 0, kBlockBytes};
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_t options;
    kvbm_cache_options_init(&options, sizeof options);
    options.n_blocks = kBatch;
    options.parts = &part;
    options.n_parts = 1;
    kvbm_cache_t* cache = nullptr;
    EXPECT_EQ(kvbm_cache_attach(manager_, ns_, &options, &cache, nullptr), KVBM_OK);
    return cache;
  }

  static kvbm_key_t new_key(uint64_t label) {
    kvbm_key_t key{};
    const uint64_t words[2] = {label * 0x9E3779B97F4A7C15ULL, ~label};
    std::memcpy(key.bytes, words, sizeof words);
    return key;
  }
  std::vector<kvbm_key_t> keys() {
    std::vector<kvbm_key_t> out(kBatch);
    for (kvbm_key_t& key : out) key = new_key(next_label_.fetch_add(1));
    return out;
  }

  void write(const Held& held) {
    kvbm_view_t view{};
    EXPECT_EQ(kvbm_block_view(manager_, &held.value, 1, &view), KVBM_OK);
    std::memcpy(view.data, &held.label, sizeof held.label);
  }
  Kind allocate() {
    Kind out;
    out.values.resize(kBatch);
    EXPECT_EQ(kvbm_manager_allocate(manager_, ns_, kBatch, out.values.data(), nullptr, 0, nullptr), KVBM_OK);
    for (const kvbm_block_t value : out.values) {
      out.labels.push_back(next_label_.fetch_add(1));
      write({value, out.labels.back()});
    }
    return out;
  }
  void complete(const Kind& kind) {
    EXPECT_EQ(kvbm_manager_complete(manager_, kind.values.data(), kBatch, nullptr), KVBM_OK);
  }
  // Allocates every free slot. Returns those taken by this call, which stay in ballast_.
  std::vector<kvbm_block_t> take_all() {
    std::vector<kvbm_block_t> taken;
    kvbm_block_t one = 0;
    while (kvbm_manager_allocate(manager_, ns_, 1, &one, nullptr, 0, nullptr) == KVBM_OK) taken.push_back(one);
    ballast_.insert(ballast_.end(), taken.begin(), taken.end());
    return taken;
  }
  void release(const std::vector<kvbm_block_t>& values) {
    EXPECT_EQ(kvbm_block_release(manager_, values.data(), values.size()), KVBM_OK);
  }

  // Collects the live holds: those of begin() that were not ended, and all that the calls made.
  void gather(std::vector<Held>& holds, std::vector<Held>& weak) {
    for (const Kind* kind : {&partial_, &complete_, &reading_, &weak_}) {
      for (size_t i = 0; i < kBatch; ++i) {
        kvbm_view_t view{};
        const kvbm_status_t got = expected(kvbm_block_view(manager_, &kind->values[i], 1, &view));
        if (got == KVBM_OK) holds.push_back({kind->values[i], kind->labels[i]});
        if (got == KVBM_ERR_STATE) weak.push_back({kind->values[i], kind->labels[i]});
      }
    }
    for (Made& made : made_) {
      holds.insert(holds.end(), made.holds.begin(), made.holds.end());
      weak.insert(weak.end(), made.weak.begin(), made.weak.end());
    }
  }
  // Each hold is on its own block.
  void look(const std::vector<Held>& holds, std::map<uint64_t, uint64_t>& label_in) {
    for (const Held& held : holds) {
      kvbm_view_t view{};
      EXPECT_EQ(kvbm_block_view(manager_, &held.value, 1, &view), KVBM_OK) << "a hold that nobody ended is gone";
      if (view.data == nullptr) continue;
      EXPECT_EQ(label_of(view), held.label) << "a hold is on another block";
      EXPECT_EQ(label_in.emplace(view.slot, held.label).first->second, held.label) << "two blocks are in one slot";
    }
  }
  void upgrade(const Held& weak) {
    kvbm_block_t value = 0;
    EXPECT_EQ(kvbm_block_upgrade(manager_, &weak.value, 1, &value), KVBM_OK);
    if (value == 0) return;
    kvbm_view_t view{};
    EXPECT_EQ(kvbm_block_view(manager_, &value, 1, &view), KVBM_OK);
    EXPECT_EQ(label_of(view), weak.label) << "a weak hold gave another block";
    release({value});
  }
  void finish(const std::vector<Held>& holds, const std::vector<Held>& weak) {
    for (const auto* some : {&holds, &weak}) {
      for (const Held& held : *some) release({held.value});
    }
    release(ballast_);
    ballast_.clear();
    kvbm_match_release(match_);
    match_ = nullptr;
    EXPECT_LE(made_[0].unpinned + made_[1].unpinned, 1U) << "a pin ended twice";
    EXPECT_EQ(kvbm_manager_unpin_owner(manager_, kOwner, nullptr), KVBM_OK);
    pin_ = 0;
    for (Made& made : made_) {
      made.holds.clear();
      made.weak.clear();
      made.pins.clear();
      made.unpinned = 0;
    }
    kvbm_manager_stats_t stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(kvbm_manager_stats(manager_, &stats), KVBM_OK);
    EXPECT_EQ(stats.holds, 0U);
    EXPECT_EQ(stats.pins, 0U);
    EXPECT_EQ(take_all().size(), slots_) << "a slot was lost, or is there twice";
    release(ballast_);
    ballast_.clear();
  }

  kvbm_context_t* context_ = nullptr;
  kvbm_manager_t* manager_ = nullptr;
  kvbm_namespace_t* ns_ = nullptr;
  size_t slots_ = 0;
  std::atomic<uint64_t> next_label_{1};
  std::vector<kvbm_block_t> ballast_;
  std::array<Made, 2> made_;
  // Holds made for this round.
  Kind partial_, complete_, reading_, weak_;
  const Kind* target_ = nullptr;
  std::vector<kvbm_block_t> many_;  // its holds, the first one kTimes more
  std::vector<kvbm_key_t> keys_, late_keys_;
  kvbm_match_t* match_ = nullptr;
  kvbm_pin_t pin_ = 0;
};

struct NamedCall {
  const char* name;
  World::Call call;
  bool on_holds;  // or on keys, pins and matches
  bool ends;      // the hold, match or pin that the other call uses
};
constexpr NamedCall kCalls[] = {
    {"clone", &World::clone, true, false},
    {"downgrade", &World::downgrade, true, false},
    {"upgrade", &World::upgrade, true, false},
    {"complete", &World::complete, true, false},
    {"register", &World::enroll, true, true},
    {"view", &World::view, true, false},
    {"release", &World::release, true, true},
    {"release, one by one", &World::release_each, true, true},
    {"release and allocate, one by one", &World::replace, true, true},
    {"allocate and release", &World::borrow, false, false},
    {"pin", &World::pin, false, false},
    {"unpin", &World::unpin, false, true},
    {"unpin_owner", &World::unpin_owner, false, true},
    {"match_blocks", &World::take_match, false, false},
    {"load", &World::load, false, false},
    {"lookup", &World::look_up, false, false},
    {"drop", &World::drop, false, true},
};
constexpr const char* kTargets[] = {"partial", "complete", "registered", "weak"};

// Starts a second thread at the same moment as this one. Each needs a processor of its own: on a busy machine they run
// in turns.
class Pair {
 public:
  Pair() : thread_([this] { serve(); }) {
    CPU_ZERO(&before_);
    if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    std::vector<int> processors;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &before_)) processors.push_back(i);
    }
    if (processors.size() < 2) return;
    keep_on(pthread_self(), processors.front());
    keep_on(thread_.native_handle(), processors.back());
  }
  ~Pair() {
    world_ = nullptr;
    turn_.store(turn_.load() + 1);
    thread_.join();
    pthread_setaffinity_np(pthread_self(), sizeof before_, &before_);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // `late`: head start of the second call over the first, negative for the first, in steps of some nanoseconds.
  void run(World& world, World::Call first, World::Call second, int late) {
    world_ = &world;
    second_ = second;
    late_ = late < 0 ? -late : 0;
    const uint64_t turn = turn_.load() + 1;
    turn_.store(turn);
    wait_for(ready_, turn);
    go_.store(turn);
    pass(late);
    (world.*first)(world.made(0));
    wait_for(done_, turn);
  }

 private:
  static void keep_on(pthread_t thread, int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    pthread_setaffinity_np(thread, sizeof one, &one);
  }
  static void pass(int steps) {
    for (int i = 0; i < steps; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  static void wait_for(const std::atomic<uint64_t>& what, uint64_t turn) {
    for (int spins = 0; what.load() != turn; ++spins) {
      if (spins > 50000) std::this_thread::yield();
    }
  }
  void serve() {
    for (uint64_t turn = 1;; ++turn) {
      wait_for(turn_, turn);
      if (world_ == nullptr) return;
      ready_.store(turn);
      wait_for(go_, turn);
      pass(late_);
      (world_->*second_)(world_->made(1));
      done_.store(turn);
    }
  }

  cpu_set_t before_;
  World* world_ = nullptr;
  World::Call second_ = nullptr;
  int late_ = 0;
  std::atomic<uint64_t> turn_{0}, ready_{0}, go_{0}, done_{0};
  std::thread thread_;
};

TEST(Holds, every_pair_of_calls_at_once_leaves_each_hold_on_its_block) {
  World world;
  Pair pair;
  uint64_t all = 0;
  const int n = static_cast<int>(test::count_from("KVBMTEST_HOLD_ROUNDS", 30, 400));
  for (size_t a = 0; a < std::size(kCalls); ++a) {
    for (size_t b = a; b < std::size(kCalls); ++b) {
      for (size_t target = 0; target < std::size(kTargets); ++target) {
        const NamedCall& first = kCalls[a];
        const NamedCall& second = kCalls[b];
        if (target != 0 && !first.on_holds && !second.on_holds) continue;  // once, with a match and a pin
        SCOPED_TRACE(std::string(first.name) + " beside " + second.name + " of " + kTargets[target] + " blocks");
        for (int round = 0; round < (first.ends || second.ends ? n : n / 6 + 1); ++round) {
          SCOPED_TRACE(round);
          world.begin(target);
          // Overlaps last from a tenth of a microsecond to several.
          pair.run(world, first.call, second.call, (round - n / 2) * (round % 2 == 0 ? 64 : 1024));
          world.end();
          if (::testing::Test::HasFailure()) {
            ADD_FAILURE() << "in this round";  // of the other thread, too
            return;
          }
          ++all;
        }
        world.check_counts();
      }
    }
  }
  test::counted(all, "pairs of calls at once");
}

}  // namespace
}  // namespace kvbm::model::holds_test
