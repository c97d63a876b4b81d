#include "benchmark/host_calls.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "base/memory/memory.h"
#include "benchmark/statistics.h"
#include "benchmark/store.h"
#include "codec/hash/copy_hint.h"
#include "codec/record/record.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kHostCallsBytes = 256ULL << 20;  // of a round
constexpr uint64_t kHotBytes = 512ULL << 10;        // blocks that a second-level cache keeps
constexpr uint64_t kCallBytes = 32ULL << 20;
constexpr uint64_t kCallBlocks = 32;
constexpr const char* kHashedCopy = "copying and hashing the same bytes";

struct CallSize {
  const char* name;
  uint64_t bytes;
  uint64_t all_bytes;  // of the blocks, which a round passes over as often as makes kHostCallsBytes
};
constexpr CallSize kCallSizes[] = {{"4KiB", 4ULL << 10, kHostCallsBytes},   {"4KiB_hot", 4ULL << 10, kHotBytes},
                                   {"64KiB", 64ULL << 10, kHostCallsBytes}, {"1MiB", 1ULL << 20, kHostCallsBytes},
                                   {"4MiB", 4ULL << 20, kHostCallsBytes},   {"16MiB", 16ULL << 20, kHostCallsBytes}};

// Keeps the compiler from dropping hashes that nothing needs.
volatile uint64_t hash_sink;

uint64_t first_word_of(size_t block) { return (block + 1) * 0x9E3779B97F4A7C15ULL; }

// An engine's memory and a manager of one block size. The host tier holds exactly the blocks of that memory.
class HostCalls {
 public:
  static Result<std::unique_ptr<HostCalls>> open(const CallSize& size, std::byte* engine, std::byte* beside) {
    std::unique_ptr<HostCalls> out(new HostCalls(size, engine, beside));
    StoreOptions options;
    options.block_bytes = size.bytes;
    options.slots = static_cast<uint32_t>(out->keys_.size());
    auto store = Store::open(options);
    if (!store.ok()) return store.status();
    out->store_ = std::move(store).value();
    for (size_t i = 0; i < out->keys_.size(); ++i) store_le<uint64_t>(engine + i * size.bytes, first_word_of(i));
    if (Status s = out->attach(); !s.ok()) return s;
    if (Status s = out->warm_up(); !s.ok()) return s;
    return out;
  }
  ~HostCalls() {
    release_matches();
    kvbm_cache_release(cache_);
  }
  HostCalls(const HostCalls&) = delete;
  HostCalls& operator=(const HostCalls&) = delete;

  // Stores all blocks under new keys, into slots that are free.
  Status store_all(double& seconds) {
    if (Status s = empty_host(); !s.ok()) return s;
    for (kvbm_key_t& key : keys_) {
      const uint64_t words[2] = {++last_ * 0x9E3779B97F4A7C15ULL, last_ * 0xBF58476D1CE4E5B9ULL};
      std::memcpy(key.bytes, words, sizeof words);
    }
    kvbm_status_t status = KVBM_OK;
    const ProcessStopwatch watch;
    for (size_t at = 0; at < keys_.size() && status == KVBM_OK; at += a_call_) {
      status = kvbm_cache_store(cache_, &keys_[at], &ids_[at], a_call_, nullptr, nullptr, 0);
    }
    seconds = watch.seconds();
    return status == KVBM_OK ? find_all() : failed("blocks could not be stored", status);
  }

  Status load_all(double& seconds) const {
    kvbm_status_t status = KVBM_OK;
    const ProcessStopwatch watch;
    for (size_t i = 0; i < matches_.size() && status == KVBM_OK; ++i) {
      status = kvbm_cache_load(cache_, matches_[i], &ids_[i * a_call_], a_call_, nullptr, nullptr, 0);
    }
    seconds = watch.seconds();
    return status == KVBM_OK ? Status() : failed("blocks could not be loaded", status);
  }

  // Measures the limit: plain copies of the same bytes with the hash, ordered by one fence a call.
  void copy_in(double& seconds) const { copy_all(beside_, engine_, codec::CopyHint::automatic, seconds); }
  void copy_out(double& seconds) const { copy_all(engine_, beside_, codec::hint_for(a_call_ * bytes_), seconds); }

 private:
  HostCalls(const CallSize& size, std::byte* engine, std::byte* beside)
      : bytes_(size.bytes),
        a_call_(std::min(kCallBlocks, kCallBytes / size.bytes)),
        engine_(engine),
        beside_(beside),
        keys_(size.all_bytes / size.bytes),
        ids_(keys_.size()) {
    std::iota(ids_.begin(), ids_.end(), 0U);
  }

  Status attach() {
    kvbm_tensor_t tensor{engine_, keys_.size() * bytes_, 0, bytes_};
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_t layout;
    kvbm_cache_options_init(&layout, sizeof layout);
    layout.n_blocks = static_cast<uint32_t>(keys_.size());
    layout.parts = &part;
    layout.n_parts = 1;
    kvbm_error_t error{};
    const kvbm_status_t status = kvbm_cache_attach(store_->manager(), store_->ns(), &layout, &cache_, &error);
    return status == KVBM_OK ? Status() : failed("the cache could not be attached", status, &error);
  }

  // Touches all memory and fills the host once, before anything is timed. Checks that what was stored comes back, for
  // which the first word of each block was cleared.
  Status warm_up() {
    double ignored = 0;
    if (Status s = store_all(ignored); !s.ok()) return s;
    for (size_t i = 0; i < keys_.size(); ++i) store_le<uint64_t>(engine_ + i * bytes_, 0);
    if (Status s = load_all(ignored); !s.ok()) return s;
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (load_le<uint64_t>(engine_ + i * bytes_) != first_word_of(i)) {
        return {Code::damaged, "a block that was loaded is not the one that was stored"};
      }
    }
    copy_in(ignored);
    return {};
  }

  // Evicts what was stored before. Which of two rounds a full host would keep is for the policy to say.
  Status empty_host() {
    release_matches();
    std::vector<kvbm_block_t> all(keys_.size());
    kvbm_manager_t* const manager = store_->manager();
    const kvbm_status_t status =
        kvbm_manager_allocate(manager, store_->ns(), all.size(), all.data(), nullptr, 0, nullptr);
    if (status != KVBM_OK) return failed("the host tier could not be emptied", status);
    kvbm_block_release(manager, all.data(), all.size());
    return {};
  }

  // Makes a match for each call of load_all().
  Status find_all() {
    for (size_t at = 0; at < keys_.size(); at += a_call_) {
      kvbm_match_t* match = nullptr;
      size_t found = 0;
      const kvbm_status_t status = kvbm_cache_lookup(cache_, &keys_[at], a_call_, nullptr, &match, &found);
      if (match != nullptr) matches_.push_back(match);
      if (status != KVBM_OK || found != a_call_) {
        return failed("stored blocks were not found", status == KVBM_OK ? KVBM_ERR_MISS : status);
      }
    }
    return {};
  }

  void release_matches() {
    for (kvbm_match_t* match : matches_) kvbm_match_release(match);
    matches_.clear();
  }

  void copy_all(std::byte* target, const std::byte* source, codec::CopyHint hint, double& seconds) const {
    uint64_t all = 0;
    const ProcessStopwatch watch;
    for (size_t first = 0; first < keys_.size(); first += a_call_) {
      const codec::CopiesOrdered of_the_call;
      for (uint64_t block = first * bytes_; block < (first + a_call_) * bytes_; block += bytes_) {
        for (uint64_t at = 0; at < bytes_; at += codec::kMaxLeafBytes) {
          const uint64_t n = std::min(codec::kMaxLeafBytes, bytes_ - at);
          all ^= codec::copy_hashed(target + block + at, source + block + at, n, hint, codec::CopyOrder::later);
        }
      }
    }
    seconds = watch.seconds();
    hash_sink = all;
  }

  const uint64_t bytes_;
  const size_t a_call_;  // blocks of one call; divides all of them
  std::byte* const engine_;
  std::byte* const beside_;  // the limits' copy
  std::vector<kvbm_key_t> keys_;
  std::vector<uint32_t> ids_;
  uint64_t last_ = 0;  // key that was given
  std::unique_ptr<Store> store_;
  kvbm_cache_t* cache_ = nullptr;
  std::vector<kvbm_match_t*> matches_;
};

// Adds the seconds of one kind of call, over all blocks, `passes` times.
Status sample(HostCalls& host, int which, uint64_t passes, double& seconds) {
  seconds = 0;
  for (uint64_t pass = 0; pass < passes; ++pass) {
    double took = 0;
    Status done;
    if (which == 0) done = host.store_all(took);
    if (which == 1) host.copy_in(took);
    if (which == 2) done = host.load_all(took);
    if (which == 3) host.copy_out(took);
    if (!done.ok()) return done;
    seconds += took;
  }
  return {};
}

Status measure_calls(const CallSize& size, HostCalls& host, int rounds, terminal::Progress& progress,
                     std::vector<Row>& rows) {
  std::vector<double> samples[4];
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 4; ++i) {
      const int which = (i + round) % 4;
      double seconds = 0;
      if (Status s = sample(host, which, kHostCallsBytes / size.all_bytes, seconds); !s.ok()) return s;
      samples[which].push_back(seconds);
    }
    progress.advance(1);
  }
  const auto speed = [&](int which) { return static_cast<double>(kHostCallsBytes) / 1e9 / median(samples[which]); };
  rows.push_back(more_is_better(std::string("store.host.") + size.name, speed(0), "GB/s", speed(1), kHashedCopy));
  rows.push_back(more_is_better(std::string("load.host.") + size.name, speed(2), "GB/s", speed(3), kHashedCopy));
  return {};
}

}  // namespace

Result<std::vector<Row>> bench_host_calls(const HostCallsOptions& options) {
  ArenaOptions arena;
  arena.bytes = kHostCallsBytes;
  arena.touch_threads = 2;
  const auto engine = Arena::map(arena);
  if (!engine.ok()) return engine.status();
  const auto beside = Arena::map(arena);
  if (!beside.ok()) return beside.status();
  std::byte* const bytes = engine.value()->data();
  for (uint64_t i = 0; i < kHostCallsBytes; i += 8) store_le<uint64_t>(bytes + i, i * 0x9E3779B97F4A7C15ULL);
  terminal::Progress progress("storing and loading", std::size(kCallSizes) * static_cast<uint64_t>(options.rounds),
                              terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const CallSize& size : kCallSizes) {
    auto host = HostCalls::open(size, bytes, beside.value()->data());
    if (!host.ok()) return host.status();
    const Status done = measure_calls(size, *host.value(), options.rounds, progress, rows);
    if (!done.ok()) return done;
  }
  return rows;
}

}  // namespace kvbm::benchmark
