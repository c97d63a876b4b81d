#include "benchmark/disk_chain.h"

#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <utility>

#include "benchmark/raw_ring.h"
#include "benchmark/statistics.h"
#include "benchmark/store.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kChainMiB = 1 << 20;
constexpr uint64_t kPromptBytes = 256 * kChainMiB;
constexpr uint64_t kHostShare = 8;
constexpr uint64_t kChainHeadBytes = 4096;        // of a record of these sizes
constexpr uint64_t kChainFlight = 8 * kChainMiB;  // as in disk.cc

class ChainBench {
 public:
  ~ChainBench() { kvbm_cache_release(cache_); }

  Status open(const std::string& dir, uint64_t block_bytes, int rounds) {
    dir_ = dir;
    block_bytes_ = block_bytes;
    n_ = static_cast<uint32_t>(kPromptBytes / block_bytes);
    StoreOptions options;
    options.block_bytes = block_bytes;
    options.slots = static_cast<uint32_t>(n_ / kHostShare);
    options.disk = dir + "/chain";
    options.disk_bytes =
        (static_cast<uint64_t>(rounds) + 1) * n_ * (block_bytes + kChainHeadBytes) * 5 / 4 + 64 * kChainMiB;
    auto store = Store::open(options);
    if (!store.ok()) return store.status();
    store_ = std::move(store).value();
    engine_.resize(n_ * block_bytes, 1);
    ids_.resize(n_);
    std::iota(ids_.begin(), ids_.end(), 0U);
    kvbm_tensor_t tensor{engine_.data(), engine_.size(), 0, block_bytes};
    kvbm_cache_part_t part{};
    part.form = KVBM_FORM_OPAQUE;
    part.tensors = &tensor;
    part.n_tensors = 1;
    kvbm_cache_options_t cache;
    kvbm_cache_options_init(&cache, sizeof cache);
    cache.n_blocks = n_;
    cache.parts = &part;
    cache.n_parts = 1;
    kvbm_error_t error{};
    const kvbm_status_t status = kvbm_cache_attach(store_->manager(), store_->ns(), &cache, &cache_, &error);
    return status == KVBM_OK ? Status{} : failed("the engine's cache could not be attached", status, &error);
  }

  Status measure(bool ours_first) {
    auto file = RawFile::make(dir_, n_ * (block_bytes_ + kChainHeadBytes));
    if (!file.ok()) return file.status();
    for (const bool write : {true, false}) {
      // This read waits until the disk's work for the writes is over, before a read is timed.
      if (!write) {
        if (const auto read = file.value().run(raw_load(false)); !read.ok()) return read.status();
      }
      for (const bool ours : {ours_first, !ours_first}) {
        if (Status s = ours ? (write ? store() : load()) : raw(file.value(), write); !s.ok()) return s;
      }
    }
    return {};
  }

  void rows(const std::string& name, std::vector<Row>& out) const {
    const std::string what = "raw io_uring O_DIRECT over the same bytes, head pages included";
    out.push_back(more_is_better("disk.chain." + name + ".store", median(store_speed_), "GB/s", median(raw_write_),
                                 what + ", and one fdatasync, as a flush is durable"));
    out.push_back(more_is_better("disk.chain." + name + ".load", median(load_speed_), "GB/s", median(raw_read_), what));
  }

 private:
  [[nodiscard]] double speed(double seconds) const { return static_cast<double>(n_ * block_bytes_) / seconds / 1e9; }

  // Stores the prompt and waits until the disk has all of it.
  Status store() {
    keys_.resize(n_);
    for (uint32_t i = 0; i < n_; ++i) {
      const uint64_t words[2] = {++count_ * 0x9E3779B97F4A7C15ULL, count_};
      std::memcpy(keys_[i].bytes, words, sizeof words);
    }
    const Stopwatch watch;
    kvbm_status_t status = kvbm_cache_store(cache_, keys_.data(), ids_.data(), n_, nullptr, nullptr, 0);
    if (status != KVBM_OK) return failed("the prompt could not be stored", status);
    status = kvbm_manager_flush(store_->manager(), KVBM_FOREVER);
    if (status != KVBM_OK) return failed("the prompt did not come down", status);
    store_speed_.push_back(speed(watch.seconds()));
    return {};
  }

  Status load() {
    kvbm_match_t* match = nullptr;
    size_t found = 0;
    const Stopwatch watch;
    kvbm_status_t status = kvbm_cache_lookup(cache_, keys_.data(), n_, nullptr, &match, &found);
    if (status == KVBM_OK && found != n_) status = KVBM_ERR_MISS;
    if (status == KVBM_OK) status = kvbm_cache_load(cache_, match, ids_.data(), n_, nullptr, nullptr, 0);
    load_speed_.push_back(speed(watch.seconds()));
    kvbm_match_release(match);
    return status == KVBM_OK ? Status{} : failed("the prompt could not be loaded", status);
  }

  [[nodiscard]] RawLoad raw_load(bool write) const {
    RawLoad load;
    load.request_bytes = block_bytes_ + kChainHeadBytes;
    load.requests = n_;
    load.depth = static_cast<unsigned>(kChainFlight / block_bytes_);
    load.write = write;
    load.durable = write;  // because a flush makes the stored blocks durable
    return load;
  }

  Status raw(const RawFile& file, bool write) {
    const auto took = file.run(raw_load(write));
    if (!took.ok()) return took.status();
    (write ? raw_write_ : raw_read_).push_back(speed(took.value().seconds));
    return {};
  }

  std::string dir_;
  uint64_t block_bytes_ = 0;
  uint32_t n_ = 0;
  uint64_t count_ = 0;
  std::unique_ptr<Store> store_;
  kvbm_cache_t* cache_ = nullptr;
  std::vector<unsigned char> engine_;
  std::vector<kvbm_key_t> keys_;
  std::vector<uint32_t> ids_;
  std::vector<double> store_speed_, load_speed_, raw_write_, raw_read_;
};

}  // namespace

Status measure_chain(const std::string& dir, uint64_t block_bytes, const std::string& name, int rounds,
                     std::vector<Row>& rows) {
  Status done;
  {
    ChainBench bench;
    done = bench.open(dir, block_bytes, rounds);
    for (int round = 0; round < rounds && done.ok(); ++round) done = bench.measure(round % 2 == 0);
    if (done.ok()) bench.rows(name, rows);
  }
  std::error_code ignored;
  std::filesystem::remove_all(dir + "/chain", ignored);
  return done;
}

}  // namespace kvbm::benchmark
