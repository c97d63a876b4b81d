#include "benchmark/cost.h"

#include <algorithm>

#include "benchmark/disk_store.h"
#include "benchmark/scratch.h"
#include "benchmark/statistics.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kCostBlockBytes = 1 << 20;
constexpr uint32_t kCostBlocks = 128;
// A block takes 8 ms. The cap lets one transfer of up to 4 MiB through in advance, which the next one pays for. Loads
// follow each other without a pause, so that all of them pay.
constexpr uint64_t kReadBytesPerS = 128ULL << 20;
constexpr uint64_t kCostDiskBytes = 512ULL << 20;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kComputeNs[] = {2 * kMs, 6 * kMs, 12 * kMs, 40 * kMs};  // time to compute a block
constexpr size_t kLengths[] = {8, 32, 128};

struct Times {
  std::vector<double> weighed, everything;
};

// Runs one load of each kind. Blocks that are not loaded count with their compute time.
Status round(DiskStore& store, size_t n, uint64_t compute_ns, Times& times) {
  const auto everything = store.load(0, n);
  if (!everything.ok()) return everything.status();
  times.everything.push_back(everything.value());
  const auto weighed = store.load_weighed(n, compute_ns);
  if (!weighed.ok()) return weighed.status();
  times.weighed.push_back(weighed.value().seconds + static_cast<double>(weighed.value().left * compute_ns) / 1e9);
  return {};
}

}  // namespace

Result<std::vector<Row>> bench_cost(const CostOptions& options) {
  const Scratch scratch(options.dir);
  if (scratch.path().empty()) return Status(Code::invalid_argument, "cannot make a directory in --dir", options.dir);
  auto opened = DiskStore::open(scratch.path(), kCostDiskBytes, kCostBlockBytes, kCostBlocks, kReadBytesPerS);
  if (!opened.ok()) return opened.status();
  DiskStore& store = *opened.value();
  Status ready = store.fill();
  if (ready.ok()) {
    const auto written = store.offload();
    ready = written.ok() ? store.empty_host() : written.status();
  }
  if (!ready.ok()) return ready;
  constexpr size_t kSteps = std::size(kComputeNs) * std::size(kLengths);
  terminal::Progress progress("cost", kSteps, terminal::Unit::items, options.quiet);
  std::vector<Row> rows;
  for (const uint64_t compute_ns : kComputeNs) {
    for (const size_t n : kLengths) {
      Times times;
      for (int i = 0; i < options.rounds; ++i) {
        if (Status done = round(store, n, compute_ns, times); !done.ok()) return done;
      }
      const double compute_all = static_cast<double>(n * compute_ns) / 1e9;
      const double load_all = median(times.everything);
      rows.push_back(less_is_better("cost.compute_" + std::to_string(compute_ns / kMs) + "ms." + std::to_string(n),
                                    median(times.weighed) * 1e3, "ms", std::min(load_all, compute_all) * 1e3,
                                    load_all < compute_all ? "loading everything" : "computing everything"));
      progress.advance(1);
    }
  }
  progress.finish();
  return rows;
}

}  // namespace kvbm::benchmark
