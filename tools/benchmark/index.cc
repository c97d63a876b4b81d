#include "benchmark/index.h"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/ids.h"
#include "benchmark/allocations.h"
#include "benchmark/statistics.h"
#include "benchmark/store.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint32_t kIndexBlocks = 131072;
constexpr size_t kBatch = 64;
constexpr size_t kWide = 256;
constexpr uint64_t kIndexBlockBytes = 4096;
constexpr double kPerBlock = 1.0 / kIndexBlocks;
// Limits on the process's memory beyond the host capacity, and on a block's metadata.
constexpr double kMemoryShare = 0.05;
constexpr double kMemoryExtra = 64.0 * 1024 * 1024;
constexpr double kMetadataLimit = 96;
constexpr const char* kMapName = "std::unordered_map of the same keys";

struct HashOfKey {
  size_t operator()(const Key& key) const noexcept { return key.low(); }  // keys are uniform
};
using Map = std::unordered_map<Key, uint64_t, HashOfKey>;

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Returns keys that no earlier call returned.
class FreshKeys {
 public:
  std::vector<kvbm_key_t> next(size_t n) {
    std::vector<kvbm_key_t> keys(n);
    for (kvbm_key_t& key : keys) {
      const uint64_t words[2] = {mix(++count_ * 0x9E3779B97F4A7C15ULL), mix(count_ ^ 0x5851F42D4C957F2DULL)};
      std::memcpy(key.bytes, words, sizeof words);
    }
    return keys;
  }

 private:
  uint64_t count_ = 0;
};

Key to_key(const kvbm_key_t& key) {
  Key out;
  std::memcpy(out.bytes.data(), key.bytes, out.bytes.size());
  return out;
}

struct Timings {
  double whole = 0;          // ns of everything
  double registering = 0;    // ns inside register, or the map's insert; if requested
  uint64_t allocations = 0;  // inside register
  uint64_t failures = 0;     // calls with a wrong result
};

// Runs one batch through the life of blocks: absent, allocated over others, completed, registered, released.
void churn_batch(const Store& store, const kvbm_key_t* keys, bool split, Timings& out) {
  kvbm_match_t* match = nullptr;
  size_t n = 0;
  kvbm_lookup_options_t each;
  kvbm_lookup_options_init(&each, sizeof each);
  each.mode = KVBM_LOOKUP_EACH;
  bool good = kvbm_manager_lookup(store.manager(), store.ns(), keys, kBatch, &each, &match, &n) == KVBM_OK && n == 0;
  kvbm_block_t blocks[kBatch];
  kvbm_key_t gone[kBatch];
  size_t evicted = 0;
  good &= kvbm_manager_allocate(store.manager(), store.ns(), kBatch, blocks, gone, kBatch, &evicted) == KVBM_OK;
  good &= kvbm_manager_complete(store.manager(), blocks, kBatch, nullptr) == KVBM_OK;
  if (split) {
    const uint64_t before = allocations();
    const Stopwatch watch;
    good &= kvbm_manager_register(store.manager(), store.ns(), blocks, keys, kBatch, nullptr) == KVBM_OK;
    out.registering += watch.ns();
    out.allocations += allocations() - before;
  } else {
    good &= kvbm_manager_register(store.manager(), store.ns(), blocks, keys, kBatch, nullptr) == KVBM_OK;
  }
  good &= kvbm_block_release(store.manager(), blocks, kBatch) == KVBM_OK;
  out.failures += good ? 0 : 1;
}

Timings churn(const Store& store, std::span<const kvbm_key_t> keys, bool split) {
  Timings out;
  const Stopwatch watch;
  for (size_t at = 0; at < keys.size(); at += kBatch) churn_batch(store, &keys[at], split, out);
  out.whole = watch.ns();
  return out;
}

// Does the equivalent on a map: finds the absent key, erases the oldest, inserts.
Timings churn(Map& map, const std::vector<kvbm_key_t>& old, const std::vector<kvbm_key_t>& keys, bool split) {
  Timings out;
  const Stopwatch watch;
  for (size_t at = 0; at < keys.size(); at += kBatch) {
    for (size_t i = at; i < at + kBatch; ++i) out.failures += map.find(to_key(keys[i])) != map.end() ? 1 : 0;
    for (size_t i = at; i < at + kBatch; ++i) map.erase(to_key(old[i]));
    const Stopwatch inserting;
    for (size_t i = at; i < at + kBatch; ++i) map.emplace(to_key(keys[i]), i);
    if (split) out.registering += inserting.ns();
  }
  out.whole = watch.ns();
  return out;
}

Timings hits(const Store& store, const std::vector<kvbm_key_t>& keys, const std::vector<size_t>& order, size_t width,
             bool with_release) {
  Timings out;
  for (const size_t at : order) {
    kvbm_match_t* match = nullptr;
    size_t n = 0;
    const Stopwatch watch;
    kvbm_manager_lookup(store.manager(), store.ns(), &keys[at], width, nullptr, &match, &n);
    if (with_release) {
      kvbm_match_release(match);
      out.whole += watch.ns();
    } else {
      out.whole += watch.ns();
      kvbm_match_release(match);
    }
    out.failures += n == width ? 0 : 1;
  }
  return out;
}

Timings hits(const Map& map, const std::vector<kvbm_key_t>& keys, const std::vector<size_t>& order, size_t width) {
  Timings out;
  uint64_t sum = 0;
  for (const size_t at : order) {
    const Stopwatch watch;
    for (size_t i = at; i < at + width; ++i) {
      const auto found = map.find(to_key(keys[i]));
      if (found != map.end()) sum += found->second;
    }
    out.whole += watch.ns();
  }
  out.failures = sum == uint64_t{kIndexBlocks} * (kIndexBlocks - 1) / 2 ? 0 : 1;
  return out;
}

// Returns the positions 0, width, 2 * width, ... of all keys, in an order that no cache foresees.
std::vector<size_t> shuffled_places(size_t width) {
  std::vector<size_t> order;
  for (size_t at = 0; at < kIndexBlocks; at += width) order.push_back(at);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[mix(i) % i]);
  return order;
}

// Two threads that stay for all rounds, like an engine's. A thread's data stays in its processor's caches, and memory
// that it frees comes from its own arena.
class IndexPair {
 public:
  // Calls make(t) first, on thread t.
  template <class Make>
  explicit IndexPair(Make make) {
    for (size_t t = 0; t < 2; ++t) {
      threads_[t] = std::thread([this, t, make] {
        make(t);
        serve(t);
      });
    }
    run([](size_t) {});
  }
  ~IndexPair() {
    end_ = true;
    turn_.fetch_add(1, std::memory_order_release);
    turn_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  IndexPair(const IndexPair&) = delete;
  IndexPair& operator=(const IndexPair&) = delete;

  // Runs work(0) and work(1), which begin together. Returns the ns until both are done.
  template <class Work>
  double run(Work&& work) {
    work_ = std::forward<Work>(work);
    ready_.store(0, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    turn_.fetch_add(1, std::memory_order_release);
    turn_.notify_all();
    for (int done = 0; (done = done_.load(std::memory_order_acquire)) != 2;)
      done_.wait(done, std::memory_order_acquire);
    return std::max(took_[0], took_[1]);
  }

 private:
  void serve(size_t t) {
    for (uint32_t seen = 0;; ++seen) {
      turn_.wait(seen, std::memory_order_acquire);
      if (end_) return;
      ready_.fetch_add(1, std::memory_order_acq_rel);
      while (ready_.load(std::memory_order_acquire) != 2) {
      }
      const Stopwatch watch;
      work_(t);
      took_[t] = watch.ns();
      done_.fetch_add(1, std::memory_order_release);
      done_.notify_one();
    }
  }

  std::function<void(size_t)> work_;
  std::atomic<uint32_t> turn_{0};
  std::atomic<int> ready_{0};
  std::atomic<int> done_{0};
  std::atomic<bool> end_{false};
  std::array<double, 2> took_{};
  std::array<std::thread, 2> threads_;
};

uint64_t resident_bytes() {
  unsigned long pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

class IndexBench {
 public:
  explicit IndexBench(const IndexOptions& options)
      : rounds_(std::max(1, options.rounds)),
        progress_("index", static_cast<uint64_t>(rounds_) * 4, terminal::Unit::items, options.quiet) {}

  Result<std::vector<Row>> run() {
    StoreOptions options;
    options.block_bytes = kIndexBlockBytes;
    options.slots = kIndexBlocks;
    options.managed_hashes = "when_needed";  // bench managed measures hashing
    auto opened = Store::open(options);
    if (!opened.ok()) return opened.status();
    store_ = std::move(opened).value();
    if (const Status filled = fill_memory(); !filled.ok()) return filled;
    measure_memory();
    map_.reserve(kIndexBlocks);
    last_ = keys_.next(kIndexBlocks);
    for (size_t i = 0; i < kIndexBlocks; ++i) map_.emplace(to_key(last_[i]), i);
    // Replaces twice the capacity before any measurement, so that free lists and the policy are in their steady
    // state.
    for (int i = 0; i < 2; ++i) failures_ += churn(*store_, keys_.next(kIndexBlocks), false).failures;
    measure_churn();
    measure_register();
    measure_two_threads();
    measure_hits();
    progress_.finish();
    if (failures_ != 0) return Status(Code::internal, "calls did not do what they should", std::to_string(failures_));
    return rows_;
  }

 private:
  void add(Row row) { rows_.push_back(std::move(row)); }

  // Writes every block's bytes once, as an engine would.
  Status fill_memory() {
    const std::vector<kvbm_key_t> keys = keys_.next(kIndexBlocks);
    for (size_t at = 0; at < kIndexBlocks; at += kBatch) {
      kvbm_block_t blocks[kBatch];
      kvbm_view_t views[kBatch];
      kvbm_status_t status =
          kvbm_manager_allocate(store_->manager(), store_->ns(), kBatch, blocks, nullptr, 0, nullptr);
      if (status == KVBM_OK) status = kvbm_block_view(store_->manager(), blocks, kBatch, views);
      if (status != KVBM_OK) return failed("blocks could not be allocated", status);
      for (const kvbm_view_t& view : views) std::memset(view.data, 1, view.bytes);
      kvbm_manager_complete(store_->manager(), blocks, kBatch, nullptr);
      kvbm_manager_register(store_->manager(), store_->ns(), blocks, &keys[at], kBatch, nullptr);
      kvbm_block_release(store_->manager(), blocks, kBatch);
    }
    return {};
  }

  void measure_memory() {
    const auto capacity = static_cast<double>(store_->capacity_bytes());
    const double beyond = std::max(0.0, static_cast<double>(resident_bytes()) - capacity);
    memory_ = less_is_better("index.memory_over_capacity", beyond, "bytes", kMemoryShare * capacity + kMemoryExtra,
                             "5 % of the host capacity + 64 MiB");
    const kvbm_tier_stats_t host = store_->stats().tiers[0];
    metadata_ = less_is_better("index.metadata_bytes", static_cast<double>(host.metadata_bytes) * kPerBlock, "bytes",
                               kMetadataLimit, "the most that is wanted");
  }

  // Runs kvbm and the map in turn; the first one alternates. Both have the same keys.
  template <class Ours, class Theirs>
  void alternate(int round, Ours&& ours, Theirs&& theirs) {
    if (round % 2 == 0) ours();
    theirs();
    if (round % 2 != 0) ours();
    progress_.advance(1);
  }

  void measure_churn() {
    std::vector<double> ours;
    std::vector<double> theirs;
    for (int round = 0; round < rounds_; ++round) {
      const std::vector<kvbm_key_t> keys = keys_.next(kIndexBlocks);
      alternate(
          round, [&] { note(churn(*store_, keys, false), ours); },
          [&] { note(churn(map_, last_, keys, false), theirs); });
      last_ = keys;
    }
    add(less_is_better("index.churn", median(ours), "ns", median(theirs),
                       std::string(kMapName) + ": find, erase, insert"));
  }

  void measure_register() {
    std::vector<double> ours;
    std::vector<double> theirs;
    uint64_t allocated = 0;
    for (int round = 0; round < rounds_; ++round) {
      const std::vector<kvbm_key_t> keys = keys_.next(kIndexBlocks);
      alternate(
          round,
          [&] {
            Timings t = churn(*store_, keys, true);
            allocated += t.allocations;
            t.whole = t.registering;
            note(t, ours);
          },
          [&] {
            Timings t = churn(map_, last_, keys, true);
            t.whole = t.registering;
            note(t, theirs);
          });
      last_ = keys;
    }
    add(less_is_better("index.register", median(ours), "ns", median(theirs), std::string(kMapName) + ": insert"));
    Row row;
    row.name = "index.register_allocations";
    row.value = static_cast<double>(allocated) / rounds_ * kPerBlock;
    row.unit = allocations_counted() ? "calls of operator new per block" : "not counted under a sanitizer";
    add(row);
  }

  // Compares two threads on one manager, each with half of the keys, with one thread that has all. Beside it, two
  // threads with a map each, which share nothing but the machine, are compared with one thread that has both maps.
  // Each way runs first once unmeasured, so that every processor's caches hold its own data, and not that of the
  // other way.
  void measure_two_threads() {
    std::vector<double> speedup;
    std::vector<double> bare;
    std::vector<double> ours;
    std::vector<double> theirs;
    std::array<std::array<Map, 2>, 2> maps;  // of each thread
    std::array<std::array<std::vector<kvbm_key_t>, 2>, 2> old;
    for (auto& pair : old) pair = {keys_.next(kIndexBlocks / 2), keys_.next(kIndexBlocks / 2)};
    IndexPair threads([&maps, &old](size_t t) {
      for (size_t m = 0; m < 2; ++m) {
        maps[t][m].reserve(kIndexBlocks / 2);
        for (size_t i = 0; i < kIndexBlocks / 2; ++i) maps[t][m].emplace(to_key(old[t][m][i]), i);
      }
    });
    std::array<Timings, 2> timings;
    const auto store = [&](size_t t, size_t n) {
      timings[t] = churn(*store_, std::span<const kvbm_key_t>(fresh_[t]).first(n), false);
    };
    // Changes thread t's first n maps to new keys.
    const auto change = [&](size_t t, size_t n) {
      for (size_t m = 0; m < n; ++m) {
        (void)churn(maps[t][m], old[t][m], next_[t][m], false);
        old[t][m] = next_[t][m];
      }
    };
    // Returns the second of two times; the keys are new each time.
    const auto second = [&](auto&& work) {
      double took = 0;
      for (int i = 0; i < 2; ++i) {
        fresh_ = {keys_.next(kIndexBlocks), keys_.next(kIndexBlocks)};
        for (auto& pair : next_) pair = {keys_.next(kIndexBlocks / 2), keys_.next(kIndexBlocks / 2)};
        timings = {};
        took = threads.run(work);
        failures_ += timings[0].failures + timings[1].failures;
      }
      return took;
    };
    for (int round = 0; round < rounds_; ++round) {
      double one = 0;
      double two = 0;
      alternate(
          round,
          [&] {
            one = second([&](size_t t) {
              if (t == 0) store(t, kIndexBlocks);
            });
          },
          [&] { two = second([&](size_t t) { store(t, kIndexBlocks / 2); }); });
      speedup.push_back(one / two);
      ours.push_back(two * kPerBlock);
      const double alone = second([&](size_t t) {
        if (t == 0) change(t, 2);
      });
      const double both = second([&](size_t t) { change(t, 1); });
      bare.push_back(alone / both);
      theirs.push_back(both * kPerBlock);
    }
    add(less_is_better("index.churn_two_threads", median(ours), "ns", median(theirs), "two threads with a map each"));
    add(more_is_better("index.churn_two_thread_speedup", median(speedup), "x", median(bare),
                       "two threads with a map each"));
  }

  void measure_hits() {
    kvbm_manager_reset(store_->manager(), nullptr);
    const std::vector<kvbm_key_t> keys = keys_.next(kIndexBlocks);
    failures_ += churn(*store_, keys, false).failures;
    map_.clear();
    for (size_t i = 0; i < kIndexBlocks; ++i) map_.emplace(to_key(keys[i]), i);
    std::vector<double> cycle;
    std::vector<double> wide;
    std::vector<double> find;
    std::vector<double> find_wide;
    const std::vector<size_t> order = shuffled_places(kBatch);
    const std::vector<size_t> wide_order = shuffled_places(kWide);
    for (int round = 0; round < rounds_; ++round) {
      alternate(
          round, [&] { note(hits(*store_, keys, order, kBatch, true), cycle); },
          [&] { note(hits(map_, keys, order, kBatch), find); });
      alternate(
          round + 1, [&] { note(hits(*store_, keys, wide_order, kWide, false), wide); },
          [&] { note(hits(map_, keys, wide_order, kWide), find_wide); });
    }
    const std::string limit = std::string(kMapName) + ": find";
    add(less_is_better("index.hit_cycle", median(cycle), "ns", median(find), limit));
    add(less_is_better("index.lookup_batch256", median(wide), "ns", median(find_wide), limit));
    add(metadata_);
    add(memory_);
  }

  void note(const Timings& timings, std::vector<double>& samples) {
    failures_ += timings.failures;
    samples.push_back(timings.whole * kPerBlock);
  }

  const int rounds_;
  terminal::Progress progress_;
  std::unique_ptr<Store> store_;
  FreshKeys keys_;
  Map map_;
  std::vector<kvbm_key_t> last_;
  std::array<std::vector<kvbm_key_t>, 2> fresh_;                // of the two threads: for the manager
  std::array<std::array<std::vector<kvbm_key_t>, 2>, 2> next_;  // for their maps
  std::vector<Row> rows_;
  Row memory_;
  Row metadata_;
  uint64_t failures_ = 0;
};

}  // namespace

Result<std::vector<Row>> bench_index(const IndexOptions& options) { return IndexBench(options).run(); }

}  // namespace kvbm::benchmark
