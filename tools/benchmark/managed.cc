#include "benchmark/managed.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "benchmark/statistics.h"
#include "benchmark/store.h"
#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kManagedBytes = 256ULL << 20;  // per round
constexpr size_t kRegistered = 64;                // per call
constexpr const char* kLeafHash = "the leaf hash of the same bytes";

struct ManagedSize {
  const char* name;
  uint64_t bytes;
};
constexpr ManagedSize kManagedSizes[] = {{"64KiB", 64ULL << 10}, {"1MiB", 1ULL << 20}, {"16MiB", 16ULL << 20}};

volatile uint64_t managed_sink;

// A manager of one block size. Its blocks are registered under new names again and again.
class ManagedStore {
 public:
  static Result<std::unique_ptr<ManagedStore>> open(uint64_t bytes, const char* hashes) {
    std::unique_ptr<ManagedStore> out(new ManagedStore(bytes));
    StoreOptions options;
    options.block_bytes = bytes;
    options.slots = static_cast<uint32_t>(out->blocks_.size());
    options.managed_hashes = hashes;
    auto store = Store::open(options);
    if (!store.ok()) return store.status();
    out->store_ = std::move(store).value();
    if (Status s = out->attach(); !s.ok()) return s;
    // Registers twice, like an engine in steady state: the second time evicts blocks.
    double ignored = 0;
    for (int i = 0; i < 2; ++i) {
      if (Status s = out->register_all(ignored); !s.ok()) return s;
    }
    return out;
  }
  ~ManagedStore() { kvbm_cache_release(cache_); }

  // Returns the seconds of this thread inside register.
  Status register_all(double& seconds) {
    seconds = 0;
    kvbm_manager_t* const manager = store_->manager();
    name_keys();
    for (size_t at = 0; at < blocks_.size(); at += kRegistered) {
      const size_t n = std::min(kRegistered, blocks_.size() - at);
      kvbm_status_t status = kvbm_manager_allocate(manager, store_->ns(), n, &blocks_[at], nullptr, 0, nullptr);
      if (status == KVBM_OK) status = kvbm_manager_complete(manager, &blocks_[at], n, nullptr);
      const ThreadStopwatch watch;
      if (status == KVBM_OK)
        status = kvbm_manager_register(manager, store_->ns(), &blocks_[at], &keys_[at], n, nullptr);
      seconds += watch.seconds();
      if (status != KVBM_OK) return failed("blocks could not be registered", status);
    }
    if (views_.empty()) {
      views_.resize(blocks_.size());
      (void)kvbm_block_view(manager, blocks_.data(), blocks_.size(), views_.data());
    }
    kvbm_block_release(manager, blocks_.data(), blocks_.size());
    return {};
  }

  // Hashes the blocks in the host in place. Adds the seconds of this thread, and of the wall clock.
  void hash_all(std::vector<double>& own, std::vector<double>& wall) const {
    const ThreadStopwatch mine;
    const Stopwatch watch;
    uint64_t all = 0;
    for (const kvbm_view_t& view : views_) {
      const auto* data = static_cast<const std::byte*>(view.data);
      for (uint64_t at = 0; at < view.bytes; at += codec::kMaxLeafBytes) {
        all ^= codec::leaf_hash(ConstBytes(data + at, std::min(codec::kMaxLeafBytes, view.bytes - at)));
      }
    }
    own.push_back(mine.seconds());
    wall.push_back(watch.seconds());
    managed_sink = all;
  }

  Status store_all(double& seconds) {
    name_keys();
    const Stopwatch watch;
    const kvbm_status_t status = kvbm_cache_store(cache_, keys_.data(), ids_.data(), keys_.size(), nullptr, nullptr, 0);
    seconds = watch.seconds();
    return status == KVBM_OK ? Status() : failed("blocks could not be stored", status);
  }

  [[nodiscard]] double gigabytes() const { return static_cast<double>(blocks_.size() * bytes_) / 1e9; }
  [[nodiscard]] double blocks() const { return static_cast<double>(blocks_.size()); }

 private:
  explicit ManagedStore(uint64_t bytes)
      : bytes_(bytes), blocks_(kManagedBytes / bytes), keys_(blocks_.size()), ids_(blocks_.size()) {
    for (uint32_t i = 0; i < ids_.size(); ++i) ids_[i] = i;
  }

  Status attach() {
    engine_.assign(kManagedBytes / sizeof(uint64_t), 0x5A5A);
    kvbm_tensor_t tensor{engine_.data(), kManagedBytes, 0, bytes_};
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_t layout;
    kvbm_cache_options_init(&layout, sizeof layout);
    layout.n_blocks = static_cast<uint32_t>(blocks_.size());
    layout.parts = &part;
    layout.n_parts = 1;
    kvbm_error_t error{};
    const kvbm_status_t status = kvbm_cache_attach(store_->manager(), store_->ns(), &layout, &cache_, &error);
    return status == KVBM_OK ? Status() : failed("the cache could not be attached", status, &error);
  }
  void name_keys() {
    for (kvbm_key_t& key : keys_) {
      const uint64_t words[2] = {++last_ * 0x9E3779B97F4A7C15ULL, last_ * 0xBF58476D1CE4E5B9ULL};
      std::memcpy(key.bytes, words, sizeof words);
    }
  }

  const uint64_t bytes_;
  std::vector<kvbm_block_t> blocks_;
  std::vector<kvbm_key_t> keys_;
  std::vector<uint32_t> ids_;
  std::vector<kvbm_view_t> views_;
  std::vector<uint64_t> engine_;
  uint64_t last_ = 0;
  std::unique_ptr<Store> store_;
  kvbm_cache_t* cache_ = nullptr;
};

Status measure_managed(const ManagedSize& size, int rounds, terminal::Progress& progress, std::vector<Row>& rows) {
  const auto now = ManagedStore::open(size.bytes, "at_register");
  if (!now.ok()) return now.status();
  const auto late = ManagedStore::open(size.bytes, "when_needed");
  if (!late.ok()) return late.status();
  std::vector<double> registered;
  std::vector<double> registered_late;
  std::vector<double> stored;
  std::vector<double> own;
  std::vector<double> wall;
  for (int round = 0; round < rounds; ++round) {
    double seconds[3] = {};
    Status done;
    const auto step = [&](int which) {
      if (which == 0 && done.ok()) done = now.value()->register_all(seconds[0]);
      if (which == 1 && done.ok()) done = late.value()->register_all(seconds[1]);
      if (which == 2 && done.ok()) done = now.value()->store_all(seconds[2]);
      if (which == 3) now.value()->hash_all(own, wall);
    };
    for (int i = 0; i < 4; ++i) step((i + round) % 4);
    if (!done.ok()) return done;
    registered.push_back(seconds[0]);
    registered_late.push_back(seconds[1]);
    stored.push_back(seconds[2]);
    progress.advance(1);
  }
  const double gigabytes = now.value()->gigabytes();
  const double blocks = now.value()->blocks();
  const std::string name = size.name;
  rows.push_back(more_is_better("managed.register." + name, gigabytes / median(registered), "GB/s",
                                gigabytes / median(own), kLeafHash));
  rows.push_back(less_is_better("managed.register_late." + name, median(registered_late) / blocks * 1e9, "ns", 0, ""));
  rows.push_back(
      more_is_better("managed.store." + name, gigabytes / median(stored), "GB/s", gigabytes / median(wall), kLeafHash));
  return {};
}

}  // namespace

Result<std::vector<Row>> bench_managed(const ManagedOptions& options) {
  const int rounds = std::max(1, options.rounds);
  terminal::Progress progress("registering", std::size(kManagedSizes) * static_cast<uint64_t>(rounds),
                              terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const ManagedSize& size : kManagedSizes) {
    if (Status s = measure_managed(size, rounds, progress, rows); !s.ok()) return s;
  }
  return rows;
}

}  // namespace kvbm::benchmark
