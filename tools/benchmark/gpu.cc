#include "benchmark/gpu.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "benchmark/gpu_bound.h"
#include "benchmark/gpu_coded.h"
#include "benchmark/gpu_coding.h"
#include "benchmark/gpu_kernels.h"
#include "benchmark/gpu_pace.h"
#include "benchmark/gpu_world.h"
#include "benchmark/statistics.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::benchmark {

namespace {

constexpr const char* kCopy = "cuMemcpyAsync, one piece, pinned";

struct Page {
  const char* name;
  uint64_t bytes;
};
constexpr Page kPages[] = {{"4KiB", 4ULL << 10},     {"8KiB", 8ULL << 10},     {"16KiB", 16ULL << 10},
                           {"32KiB", 32ULL << 10},   {"64KiB", 64ULL << 10},   {"128KiB", 128ULL << 10},
                           {"256KiB", 256ULL << 10}, {"512KiB", 512ULL << 10}, {"1MiB", 1ULL << 20},
                           {"2MiB", 2ULL << 20}};
// A page of 16 tokens of 8 heads of 128 bf16, and how many blocks a call stores or loads.
constexpr uint64_t kLatencyPage = 32ULL << 10;
constexpr uint64_t kLatencyBlocks[] = {1, 8, 64};

constexpr Page kPathPages[] = {{"4KiB", 4ULL << 10}, {"64KiB", 64ULL << 10}, {"1MiB", 1ULL << 20}};
constexpr size_t kPaths = 3;
constexpr uint64_t kFilled = 0x5A5A5A5A5A5A5A5AULL;

uint64_t pattern(uint64_t word) { return word * 0x9E3779B97F4A7C15ULL; }

// Returns whether [bytes, bytes + n) equals the cache from `offset` on.
bool is_pattern(const std::byte* bytes, uint64_t offset, uint64_t n) {
  for (uint64_t i = 0; i < n; i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes + i, sizeof word);
    if (word != pattern((offset + i) / 8)) return false;
  }
  return true;
}

bool is_pattern(const GpuWorld& world, const device::LeafMove& leaf) {
  const StridedRun& run = leaf.device;
  const uint64_t base = reinterpret_cast<device::CuPointer>(run.data) - world.cache();
  const std::byte* at = leaf.record;
  for (uint32_t i = 0; i < run.count0; ++i) {
    for (uint32_t j = 0; j < run.count1; ++j, at += run.bytes) {
      const uint64_t offset = base + static_cast<uint64_t>(i * run.stride0 + j * run.stride1);
      if (!is_pattern(at, offset, run.bytes)) return false;
    }
  }
  return true;
}

// Moves all leaves out and in again and compares every byte and every hash. Leaves the cache and the records as after
// a store, and in each leaf its hash.
Status check(GpuWorld& world, std::vector<device::LeafMove>& leaves, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 8) {
    const uint64_t word = pattern(i / 8);
    std::memcpy(world.records() + i, &word, sizeof word);
  }
  const auto put = world.copy(world.cache(), world.host(world.records()), bytes);
  if (!put.ok()) return put.status();
  std::memset(world.records(), 0, bytes);
  std::vector<uint64_t> hashes;
  auto moved = world.gather(leaves, &hashes);
  if (!moved.ok()) return moved.status();
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!is_pattern(world, leaves[i])) return {Code::damaged, "a leaf was gathered wrong", std::to_string(i)};
    leaves[i].expected = hashes[i];
    if (codec::leaf_hash({leaves[i].record, leaves[i].device.total()}) != hashes[i]) {
      return {Code::damaged, "a leaf's hash was computed wrong on the device", std::to_string(i)};
    }
  }
  if (Status s = world.fill(world.cache(), kFilled & 0xFF, bytes); !s.ok()) return s;
  moved = world.scatter(leaves);
  if (!moved.ok()) return moved.status();
  moved = world.copy(world.host(world.records()), world.cache(), bytes);
  if (!moved.ok()) return moved.status();
  // All bytes that the leaves cover must be back in place, and all other bytes unchanged.
  uint64_t back = 0;
  uint64_t lost = 0;
  for (uint64_t i = 0; i < bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, world.records() + i, sizeof word);
    back += word == pattern(i / 8) ? 8 : 0;
    lost += word == kFilled ? 8 : 0;
  }
  uint64_t moved_bytes = 0;
  for (const device::LeafMove& leaf : leaves) moved_bytes += leaf.device.total();
  if (back != moved_bytes || lost != bytes - moved_bytes) return {Code::damaged, "leaves were scattered wrong"};
  return world.gather(leaves).status();
}

Row speed(const std::string& name, uint64_t bytes, const Samples& samples) {
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  return more_is_better(name, gigabytes / median(samples.ours), "GB/s", gigabytes / median(samples.theirs), kCopy);
}

Row duration(const std::string& name, const Samples& samples) {
  return less_is_better(name, median(samples.ours) * 1e6, "us", median(samples.theirs) * 1e6, kCopy);
}

// Returns the average length of neighbours in host memory, within parts.
uint64_t run_bytes(std::span<const device::LeafMove> leaves) {
  const uint64_t part = device::TransferOptions().part_bytes;
  uint64_t bytes = 0, runs = 0, run = 0;
  const std::byte* end = nullptr;
  for (const device::LeafMove& leaf : leaves) {
    const uint64_t n = leaf.device.total();
    if (leaf.record != end || run + n > part) {
      ++runs;
      run = 0;
    }
    run += n;
    bytes += n;
    end = leaf.record + n;
  }
  return runs == 0 ? 0 : bytes / runs;
}

// Records the transfers of one direction for their bound. The host's own work is that of the quickest sample.
class Moved {
 public:
  Moved(GpuWorld& world, std::span<const device::LeafMove> leaves, uint64_t bytes, bool out) : world_(world) {
    shape_.bytes = bytes;
    shape_.run_bytes = run_bytes(leaves);
    shape_.out = out;
    shape_.first_seconds = world.planning(leaves, out);
    before_ = stats().mapped_leaves;
  }
  void add() {
    const double worked = world_.worked();
    if (shape_.host_seconds == 0 || worked < shape_.host_seconds) shape_.host_seconds = worked;
  }
  [[nodiscard]] MovedShape shape(const Samples& samples) {
    shape_.limit_seconds = median(samples.theirs);
    shape_.mapped = stats().mapped_leaves != before_;
    return shape_;
  }

 private:
  [[nodiscard]] device::TransferStats stats() const {
    return shape_.out ? world_.transfers().gathers() : world_.transfers().scatters();
  }
  GpuWorld& world_;
  MovedShape shape_;
  uint64_t before_ = 0;
};

// Moves leaves out or in, in turns with one copy of as many bytes.
Status moved(GpuWorld& world, std::span<const device::LeafMove> leaves, uint64_t bytes, bool out, int rounds,
             GpuPace& pace, Samples& samples, MovedShape& shape) {
  Moved seen(world, leaves, bytes, out);
  const device::CuPointer records = world.host(world.records());
  const Status s = alternate(
      rounds, samples, pace,
      [&] {
        const auto seconds = out ? world.gather(leaves) : world.scatter(leaves);
        seen.add();
        return seconds;
      },
      [&] { return out ? world.copy(records, world.cache(), bytes) : world.copy(world.spare(), records, bytes); });
  if (s.ok()) shape = seen.shape(samples);
  return s;
}

// Measures leaves of `shape` out and in, against one copy of as many bytes.
Status both_ways(GpuWorld& world, const std::string& name, const PagedShape& shape, int rounds, GpuPace& pace,
                 std::vector<Row>& rows) {
  std::vector<device::LeafMove> leaves = world.leaves(shape, shape.blocks);
  const uint64_t bytes = shape.bytes();
  if (Status s = check(world, leaves, bytes); !s.ok()) return s;
  Samples out;
  MovedShape seen;
  Status s = moved(world, leaves, bytes, true, rounds, pace, out, seen);
  if (!s.ok()) return s;
  rows.push_back(bounded(speed("gpu.gather." + name, bytes, out), moved_bound(seen)));
  // The records are as the last of the two left them.
  if (const auto again = world.gather(leaves); !again.ok()) return again.status();
  Samples in;
  s = moved(world, leaves, bytes, false, rounds, pace, in, seen);
  if (!s.ok()) return s;
  rows.push_back(bounded(speed("gpu.scatter." + name, bytes, in), moved_bound(seen)));
  return {};
}

// Measures each path on its own, whichever the library would choose.
Status each_path(GpuWorld& world, const GpuOptions& options, GpuPace& pace, std::vector<Row>& rows) {
  device::PlanLimits mapped;
  mapped.always_mapped = true;
  device::PlanLimits staged;
  staged.mapped_bytes = 0;
  staged.staged_run_bytes = 0;
  staged.straight_bytes = UINT64_MAX;
  device::PlanLimits straight;
  straight.mapped_bytes = 0;
  straight.straight_bytes = 0;
  const std::pair<const char*, const device::PlanLimits*> ways[] = {
      {"mapped", &mapped}, {"staged", &staged}, {"straight", &straight}};
  for (const auto& [name, limits] : ways) {
    if (Status s = world.use(limits); !s.ok()) return s;
    for (const Page& page : kPathPages) {
      const Status s = both_ways(world, std::string(page.name) + "." + name, paged_shape(page.bytes, options.bytes),
                                 options.rounds, pace, rows);
      if (!s.ok()) return s;
    }
  }
  return world.use(nullptr);
}

// Measures how long a caller waits for a store of few blocks, and for a load.
Status latency(GpuWorld& world, const GpuOptions& options, GpuPace& pace, std::vector<Row>& rows) {
  PagedShape shape = paged_shape(kLatencyPage, world.bytes() / std::end(kLatencyBlocks)[-1]);
  shape.blocks = world.bytes() / shape.block_bytes();
  for (const uint64_t blocks : kLatencyBlocks) {
    std::vector<device::LeafMove> leaves = world.leaves(shape, blocks);
    const uint64_t bytes = shape.block_bytes() * blocks;
    Status s = check(world, leaves, shape.bytes());
    if (!s.ok()) return s;
    Samples store;
    Samples load;
    MovedShape out;
    MovedShape in;
    const int rounds = options.rounds * options.calls;
    s = moved(world, leaves, bytes, true, rounds, pace, store, out);
    if (s.ok()) s = world.gather(leaves).status();
    if (s.ok()) s = moved(world, leaves, bytes, false, rounds, pace, load, in);
    if (!s.ok()) return s;
    const std::string name = std::to_string(blocks);
    rows.push_back(bounded(duration("gpu.store_latency." + name, store), latency_bound(out)));
    rows.push_back(bounded(duration("gpu.load_latency." + name, load), latency_bound(in)));
  }
  return {};
}

}  // namespace

Result<GpuFigures> bench_gpu(const device::Driver& driver, const GpuOptions& options) {
  auto opened = GpuWorld::open(driver, options);
  if (!opened.ok()) return opened.status();
  GpuWorld& world = *opened.value();
  GpuFigures figures;
  figures.device = world.describe();
  const auto rounds = static_cast<uint64_t>(options.rounds);
  const uint64_t shapes = std::size(kPages) + 1 + kPaths * std::size(kPathPages);
  const uint64_t calls = static_cast<uint64_t>(options.calls) * std::size(kLatencyBlocks);
  constexpr uint64_t kKernelSamples = 4;  // gather, scatter, hash, the product
  const uint64_t coded_samples = 2 + gpu_coding_figures();
  const uint64_t samples = 2 * (shapes + std::size(kLatencyBlocks)) + kKernelSamples + coded_samples;
  GpuPace pace(options.seconds, samples, rounds * (2 * (shapes + calls) + kKernelSamples + coded_samples),
               options.quiet);
  for (const Page& page : kPages) {
    const PagedShape shape = paged_shape(page.bytes, options.bytes);
    const Status s = both_ways(world, page.name, shape, options.rounds, pace, figures.rows);
    if (!s.ok()) return s;
  }
  // Pages of 16 tokens of 8 heads of 128 bf16, in the engine (tokens, heads, dim).
  PagedShape rows = paged_shape(kLatencyPage, options.bytes);
  rows.row_bytes = 256;
  rows.heads = 8;
  Status s = both_ways(world, "32KiB_of_256B", rows, options.rounds, pace, figures.rows);
  if (s.ok()) s = each_path(world, options, pace, figures.rows);
  if (s.ok()) s = latency(world, options, pace, figures.rows);
  if (s.ok()) s = bench_gpu_kernels(world, options, pace, figures.rows);
  if (s.ok()) s = bench_gpu_coded(world, options, pace, figures.rows);
  if (s.ok()) s = bench_gpu_coding(world, options, pace, figures.rows);
  pace.finish();
  if (!s.ok()) return s;
  figures.cut = pace.cut();
  return figures;
}

}  // namespace kvbm::benchmark
