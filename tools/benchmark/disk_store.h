// Blocks for the disk benchmarks: written to a disk tier in batches, removed from the host, and loaded into an
// engine's memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/store.h"

namespace kvbm::benchmark {

class DiskStore {
 public:
  // `blocks` at a time are written or loaded. `dir`: a directory, or the URL of a store.
  static Result<std::unique_ptr<DiskStore>> open(const std::string& dir, uint64_t disk_bytes, uint64_t block_bytes,
                                                 uint32_t blocks, uint64_t read_bytes_per_s = 0);
  ~DiskStore();
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;

  // Makes blocks() new blocks in the host tier.
  Status fill();
  // Writes the blocks of the last fill to the disk tier. Returns the seconds until all are there.
  Result<double> offload();
  // Removes all blocks from the host tier.
  Status empty_host();
  // Loads blocks [first, first + n) of the last fill from the disk tier. Returns the seconds.
  Result<double> load(size_t first, size_t n);
  // Looks up the first `n` blocks of the last fill `times` times. Returns the nanoseconds per block.
  Result<double> look_up(size_t n, size_t times);
  // Loads like load(), with the compute time of a block.
  struct Weighed {
    double seconds = 0;
    size_t left = 0;  // blocks that were left to compute
  };
  Result<Weighed> load_weighed(size_t n, uint64_t compute_block_ns);
  // Makes and offloads half as many new blocks as blocks(), beside loads of another thread. Their keys are not
  // recorded.
  Status write_others();
  [[nodiscard]] uint32_t blocks() const noexcept { return blocks_; }
  [[nodiscard]] kvbm_manager_stats_t stats() const { return store_->stats(); }

 private:
  DiskStore() = default;
  Status make(std::vector<kvbm_key_t>& keys);

  std::unique_ptr<Store> store_;
  kvbm_cache_t* cache_ = nullptr;
  std::vector<unsigned char> engine_;
  std::vector<kvbm_key_t> keys_;
  std::vector<uint32_t> ids_;
  uint64_t block_bytes_ = 0;
  uint32_t blocks_ = 0;
  uint64_t count_ = 0;
  uint64_t salt_ = 0;  // because a store may have blocks of other runs
};

}  // namespace kvbm::benchmark
