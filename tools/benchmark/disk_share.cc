#include "benchmark/disk_share.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "benchmark/disk_store.h"
#include "benchmark/statistics.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kShareDiskBytes = uint64_t{4} << 30;
constexpr uint64_t kShareRoundBytes = uint64_t{64} << 20;
constexpr size_t kSharesWhileFull = 16;  // rounds: they rewrite a quarter of the capacity

struct ShareSize {
  uint64_t bytes;
  const char* name;
  double wanted;
};
constexpr ShareSize kShareSizes[] = {{4096, "4KiB", 0.75}, {64 << 10, "64KiB", 0.97}, {1 << 20, "1MiB", 0.99}};

// Returns the payload's share of the capacity while the tier is full and evicts a block for each new one.
Result<double> share_of(const std::string& dir, uint64_t block_bytes) {
  auto store =
      DiskStore::open(dir, kShareDiskBytes, block_bytes, static_cast<uint32_t>(kShareRoundBytes / block_bytes));
  if (!store.ok()) return store.status();
  std::vector<double> shares;
  const uint64_t most = 4 * kShareDiskBytes / kShareRoundBytes;
  for (uint64_t round = 0; round < most && shares.size() < kSharesWhileFull; ++round) {
    if (Status s = store.value()->fill(); !s.ok()) return s;
    if (const auto seconds = store.value()->offload(); !seconds.ok()) return seconds.status();
    if (Status s = store.value()->empty_host(); !s.ok()) return s;
    const kvbm_tier_stats_t disk = store.value()->stats().tiers[1];
    if (disk.evictions == 0) continue;
    shares.push_back(static_cast<double>(disk.payload_bytes) / static_cast<double>(disk.capacity_bytes));
  }
  if (shares.size() < kSharesWhileFull) return Status(Code::internal, "the tier did not fill up");
  return median(shares);
}

}  // namespace

Status measure_payload_share(const std::string& dir, std::vector<Row>& rows) {
  for (const ShareSize& size : kShareSizes) {
    const auto share = share_of(dir + "/share", size.bytes);
    std::error_code ignored;
    std::filesystem::remove_all(dir + "/share", ignored);
    if (!share.ok()) return share.status();
    rows.push_back(more_is_better(std::string("disk.payload_share.") + size.name, share.value(), "of the capacity",
                                  size.wanted, "what is wanted of a tier of 4 GiB"));
  }
  return {};
}

}  // namespace kvbm::benchmark
