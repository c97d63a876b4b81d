#include "benchmark/disk_store.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "base/crypto/random.h"
#include "benchmark/statistics.h"

namespace kvbm::benchmark {

Result<std::unique_ptr<DiskStore>> DiskStore::open(const std::string& dir, uint64_t disk_bytes, uint64_t block_bytes,
                                                   uint32_t blocks, uint64_t read_bytes_per_s) {
  auto made = std::unique_ptr<DiskStore>(new DiskStore());
  StoreOptions options;
  options.block_bytes = block_bytes;
  options.slots = blocks;
  options.disk = dir;
  options.disk_bytes = disk_bytes;
  options.disk_read_bytes_per_s = read_bytes_per_s;
  // Blocks are offloaded on request only.
  options.admission = KVBM_ADMIT_ON_REQUEST;
  auto store = Store::open(options);
  if (!store.ok()) return store.status();
  made->store_ = std::move(store).value();
  made->block_bytes_ = block_bytes;
  made->salt_ = SystemRandom().next();
  made->blocks_ = blocks;
  made->engine_.resize(blocks * block_bytes, 1);
  made->ids_.resize(blocks);
  std::iota(made->ids_.begin(), made->ids_.end(), 0U);
  kvbm_tensor_t tensor{made->engine_.data(), made->engine_.size(), 0, block_bytes};
  kvbm_cache_part_t part{};
  part.form = KVBM_FORM_OPAQUE;
  part.tensors = &tensor;
  part.n_tensors = 1;
  kvbm_cache_options_t cache;
  kvbm_cache_options_init(&cache, sizeof cache);
  cache.n_blocks = blocks;
  cache.parts = &part;
  cache.n_parts = 1;
  kvbm_error_t error{};
  const kvbm_status_t status =
      kvbm_cache_attach(made->store_->manager(), made->store_->ns(), &cache, &made->cache_, &error);
  if (status != KVBM_OK) return failed("the engine's cache could not be attached", status, &error);
  return made;
}

DiskStore::~DiskStore() { kvbm_cache_release(cache_); }

// Makes new blocks in the host tier, one for each key, and the keys too.
Status DiskStore::make(std::vector<kvbm_key_t>& keys) {
  kvbm_manager_t* manager = store_->manager();
  const size_t n = keys.size();
  std::vector<kvbm_block_t> blocks(n);
  std::vector<kvbm_view_t> views(n);
  kvbm_status_t status = kvbm_manager_allocate(manager, store_->ns(), n, blocks.data(), nullptr, 0, nullptr);
  if (status == KVBM_OK) status = kvbm_block_view(manager, blocks.data(), n, views.data());
  if (status != KVBM_OK) return failed("blocks could not be allocated", status);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t words[2] = {++count_ * 0x9E3779B97F4A7C15ULL, count_ ^ salt_};
    std::memcpy(keys[i].bytes, words, sizeof words);
    std::memset(views[i].data, static_cast<int>(count_ & 0xFF), block_bytes_);
  }
  status = kvbm_manager_complete(manager, blocks.data(), n, nullptr);
  if (status == KVBM_OK) status = kvbm_manager_register(manager, store_->ns(), blocks.data(), keys.data(), n, nullptr);
  kvbm_block_release(manager, blocks.data(), n);
  return status == KVBM_OK ? Status{} : failed("blocks could not be registered", status);
}

Status DiskStore::fill() {
  keys_.assign(blocks_, kvbm_key_t{});
  return make(keys_);
}

Status DiskStore::write_others() {
  std::vector<kvbm_key_t> keys(blocks_ / 2);
  if (Status made = make(keys); !made.ok()) return made;
  const kvbm_status_t status =
      kvbm_manager_offload(store_->manager(), store_->ns(), nullptr, keys.data(), keys.size(), 1, nullptr, 0);
  return status == KVBM_OK ? Status{} : failed("blocks could not be offloaded", status);
}

Result<double> DiskStore::offload() {
  const Stopwatch watch;
  const kvbm_status_t status =
      kvbm_manager_offload(store_->manager(), store_->ns(), nullptr, keys_.data(), keys_.size(), 1, nullptr, 0);
  if (status != KVBM_OK) return failed("blocks could not be offloaded", status);
  return watch.seconds();
}

Status DiskStore::empty_host() {
  std::vector<kvbm_block_t> all(blocks_);
  const kvbm_status_t status =
      kvbm_manager_allocate(store_->manager(), store_->ns(), blocks_, all.data(), nullptr, 0, nullptr);
  if (status != KVBM_OK) return failed("the host tier could not be emptied", status);
  kvbm_block_release(store_->manager(), all.data(), blocks_);
  return {};
}

Result<double> DiskStore::load(size_t first, size_t n) {
  kvbm_match_t* match = nullptr;
  size_t found = 0;
  const Stopwatch watch;
  kvbm_status_t status =
      kvbm_manager_lookup(store_->manager(), store_->ns(), keys_.data() + first, n, nullptr, &match, &found);
  if (status != KVBM_OK || found != n) {
    kvbm_match_release(match);
    return failed("stored blocks were not found", status == KVBM_OK ? KVBM_ERR_MISS : status);
  }
  kvbm_load_options_t options;
  kvbm_load_options_init(&options, sizeof options);
  options.timeout_ns = KVBM_FOREVER;
  options.keep_below = 1;
  status = kvbm_cache_load(cache_, match, ids_.data() + first, n, &options, nullptr, 0);
  const double seconds = watch.seconds();
  kvbm_match_release(match);
  if (status != KVBM_OK) return failed("blocks could not be loaded", status);
  return seconds;
}

Result<double> DiskStore::look_up(size_t n, size_t times) {
  const Stopwatch watch;
  for (size_t i = 0; i < times; ++i) {
    kvbm_match_t* match = nullptr;
    size_t found = 0;
    const kvbm_status_t status =
        kvbm_manager_lookup(store_->manager(), store_->ns(), keys_.data(), n, nullptr, &match, &found);
    kvbm_match_release(match);
    if (status != KVBM_OK || found != n)
      return failed("stored blocks were not found", status == KVBM_OK ? KVBM_ERR_MISS : status);
  }
  return watch.ns() / static_cast<double>(n * times);
}

Result<DiskStore::Weighed> DiskStore::load_weighed(size_t n, uint64_t compute_block_ns) {
  kvbm_match_t* match = nullptr;
  size_t found = 0;
  const Stopwatch watch;
  kvbm_status_t status = kvbm_manager_lookup(store_->manager(), store_->ns(), keys_.data(), n, nullptr, &match, &found);
  if (status != KVBM_OK || found != n) {
    kvbm_match_release(match);
    return failed("stored blocks were not found", status == KVBM_OK ? KVBM_ERR_MISS : status);
  }
  std::vector<kvbm_status_t> items(n, KVBM_ERR_INTERNAL);
  kvbm_load_options_t options;
  kvbm_load_options_init(&options, sizeof options);
  options.keep_below = 1;
  options.compute_block_ns = compute_block_ns;
  options.item_status = items.data();
  status = kvbm_cache_load(cache_, match, ids_.data(), n, &options, nullptr, 0);
  Weighed out{watch.seconds(), n};
  kvbm_match_release(match);
  if (status < 0) return failed("blocks could not be loaded", status);
  while (out.left != 0 && items[n - out.left] == KVBM_OK) --out.left;
  return out;
}

}  // namespace kvbm::benchmark
