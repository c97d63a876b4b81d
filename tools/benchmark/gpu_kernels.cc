#include "benchmark/gpu_kernels.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>
#include <utility>

#include "benchmark/gpu_bound.h"
#include "benchmark/gpu_image.h"
#include "benchmark/statistics.h"
#include "device/kernels/kernel_set.h"
#include "device/kernels/leaf_job.h"

namespace kvbm::benchmark {

namespace {

using device::CuFunction;
using device::CuPointer;

// Launches and copies in one timed span on the device: so many that the events' own time does not show.
constexpr int kRepeats = 8;
constexpr uint64_t kKernelPage = 32ULL << 10;
constexpr uint32_t kGemmTile = 128;
constexpr uint32_t kLargestGemm = 4096;
constexpr double kGemmSampleMs = 100;

// The benchmark's own kernels on the device of a world.
class Beside {
 public:
  static Result<std::unique_ptr<Beside>> load(GpuWorld& world) {
    const device::Driver& driver = world.driver();
    const void* image = driver.own_kernels != nullptr ? driver.own_kernels : gpu_image().data();
    if (image == nullptr)
      return Status(Code::unsupported, "this build has no kernels for GPUs", "it was made without nvcc");
    auto out = std::unique_ptr<Beside>(new Beside(world));
    const device::Device::Scope scope(world.device());
    Status s = world.device().check(driver.cuModuleLoadData(&out->module_, image), "cuModuleLoadData");
    if (s.ok()) s = out->get("kvbm_bench_read", &out->read_);
    if (s.ok()) s = out->get("kvbm_bench_gemm", &out->gemm_);
    if (!s.ok()) return s;
    return out;
  }
  ~Beside() {
    const device::Device::Scope scope(world_.device());
    if (module_ != nullptr) (void)world_.driver().cuModuleUnload(module_);
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  // Reads [from, from + bytes) with every multiprocessor.
  Status read(CuPointer from, uint64_t bytes, CuPointer out) {
    uint64_t count = bytes / 16;
    void* parameters[] = {&from, &count, &out};
    return launch(read_, {static_cast<unsigned>(world_.device().facts().multiprocessors) * 4, 1}, 512, parameters);
  }
  // Multiplies n x n matrices, n a multiple of 128.
  Status gemm(CuPointer a, CuPointer b, CuPointer c, uint32_t n) {
    void* parameters[] = {&a, &b, &c, &n};
    return launch(gemm_, {n / kGemmTile, n / kGemmTile}, 128, parameters);
  }

 private:
  struct Grid {
    unsigned x, y;
  };
  explicit Beside(GpuWorld& world) : world_(world) {}
  Status get(const char* name, CuFunction* out) {
    return world_.device().check(world_.driver().cuModuleGetFunction(out, module_, name), name);
  }
  Status launch(CuFunction function, Grid grid, unsigned threads, void** parameters) {
    const device::Device::Scope scope(world_.device());
    return world_.device().check(world_.driver().cuLaunchKernel(function, grid.x, grid.y, 1, threads, 1, 1, 0,
                                                                world_.stream(), parameters, nullptr),
                                 "cuLaunchKernel");
  }
  GpuWorld& world_;
  device::CuModule module_ = nullptr;
  CuFunction read_ = nullptr, gemm_ = nullptr;
};

// Leaves described to kernels, in memory of the device, with space for the kernels' results.
class Jobs {
 public:
  // The record of each leaf has the same offset in the spare memory as the leaf's record in pinned memory.
  static Result<std::unique_ptr<Jobs>> make(GpuWorld& world, const std::vector<device::LeafMove>& leaves) {
    auto out = std::unique_ptr<Jobs>(new Jobs(world));
    for (const device::LeafMove& leaf : leaves) {
      const StridedRun& run = leaf.device;
      const device::DeviceRun from =
          device::make_run(reinterpret_cast<CuPointer>(run.data), run.bytes, run.count1, run.stride0, run.stride1);
      const uint64_t record = world.spare() + static_cast<uint64_t>(leaf.record - world.records());
      out->jobs_.push_back(device::make_leaf_job(from, run.count0, record, false, 0));
      out->largest_ = std::max(out->largest_, out->jobs_.back().bytes);
    }
    Status s = out->upload();
    if (!s.ok()) return s;
    return out;
  }
  ~Jobs() {
    const device::Device::Scope scope(world_.device());
    if (memory_ != 0) (void)world_.driver().cuMemFree(memory_);
  }
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  // Launches a kernel of leaves on the whole device, as nothing else runs.
  Status launch(device::Kernel kernel) {
    const device::Device::Scope scope(world_.device());
    const auto blocks = static_cast<uint32_t>(world_.device().facts().multiprocessors) * 2;
    const auto count = static_cast<uint32_t>(jobs_.size());
    return world_.device().check(
        world_.device().kernels().launch_leaves(kernel, world_.stream(), blocks, memory_, count,
                                                device::warps_for(largest_), hashes_, good_),
        "cuLaunchKernel");
  }
  Result<std::vector<uint64_t>> hashes() {
    std::vector<uint64_t> out(jobs_.size());
    const auto copied = world_.copy(reinterpret_cast<CuPointer>(out.data()), hashes_, out.size() * sizeof out[0]);
    if (!copied.ok()) return copied.status();
    return out;
  }

 private:
  explicit Jobs(GpuWorld& world) : world_(world) {}
  Status upload() {
    const uint64_t bytes = jobs_.size() * sizeof jobs_[0];
    const device::Device::Scope scope(world_.device());
    Status s = world_.device().check(world_.driver().cuMemAlloc(&memory_, bytes + jobs_.size() * 9), "cuMemAlloc");
    if (!s.ok()) return s;
    hashes_ = memory_ + bytes;
    good_ = hashes_ + jobs_.size() * 8;
    return world_.copy(memory_, reinterpret_cast<CuPointer>(jobs_.data()), bytes).status();
  }
  GpuWorld& world_;
  std::vector<device::LeafJob> jobs_;
  uint32_t largest_ = 0;
  CuPointer memory_ = 0, hashes_ = 0, good_ = 0;
};

// Milliseconds of spans of both kinds, in turns. Each span runs its kind kRepeats times.
struct Spans {
  std::vector<double> ours, theirs;
};
template <class Ours, class Theirs>
Status alternate(GpuWorld& world, int rounds, GpuPace& pace, Spans& spans, Ours&& ours, Theirs&& theirs) {
  pace.begin(rounds);
  while (pace.another()) {
    for (int turn = 0; turn < 2; ++turn) {
      const bool is_ours = (pace.round() + turn) % 2 == 0;
      const auto ms = world.device_ms([&]() -> Status {
        Status s;
        for (int i = 0; i < kRepeats && s.ok(); ++i) s = is_ours ? ours() : theirs();
        return s;
      });
      if (!ms.ok()) return ms.status();
      (is_ours ? spans.ours : spans.theirs).push_back(ms.value());
    }
  }
  return {};
}

Row speed(const char* name, uint64_t bytes, const Spans& spans, const char* limit) {
  const double gigabytes = static_cast<double>(bytes) * kRepeats / 1e9 * 1e3;  // spans are in milliseconds
  return more_is_better(name, gigabytes / median(spans.ours), "GB/s", gigabytes / median(spans.theirs), limit);
}

// Returns the clock of the multiprocessors in cycles per second; 0 if the driver does not report it.
double clock_of(GpuWorld& world) {
  constexpr int kClockRate = 13;  // CU_DEVICE_ATTRIBUTE_CLOCK_RATE, in kHz
  int khz = 0;
  device::CuDevice device = 0;
  const device::Device::Scope scope(world.device());
  if (world.driver().cuDeviceGet(&device, world.device().facts().ordinal) != device::kCuSuccess) return 0;
  return world.driver().cuDeviceGetAttribute(&khz, kClockRate, device) == device::kCuSuccess ? khz * 1e3 : 0;
}

// Measures pages to records and back in the device's own memory, and leaves hashed in place.
Status on_device(GpuWorld& world, Beside& beside, int rounds, GpuPace& pace, std::vector<Row>& rows) {
  const PagedShape shape = paged_shape(kKernelPage, world.bytes());
  const uint64_t bytes = shape.bytes();
  const std::vector<device::LeafMove> leaves = world.leaves(shape, shape.blocks);
  auto made = Jobs::make(world, leaves);
  if (!made.ok()) return made.status();
  Jobs& jobs = *made.value();
  const auto copy = [&] {
    const device::Device::Scope scope(world.device());
    const device::CuResult result = world.driver().cuMemcpyAsync(world.spare(), world.cache(), bytes, world.stream());
    return world.device().check(result, "cuMemcpyAsync");
  };
  const auto push = [&](const char* name, const Spans& spans, const char* limit) {
    Row row = speed(name, bytes, spans, limit);
    const Bound bound =
        hash_bound(world.device().facts().multiprocessors, clock_of(world), row.limit.value_or(0) * 1e9);
    rows.push_back(bounded(std::move(row), bound));
  };
  // The records on the device, and the hashes, must equal those that a gather brought to the host.
  std::vector<uint64_t> wanted;
  if (const auto moved = world.gather(leaves, &wanted); !moved.ok()) return moved.status();
  Spans gather;
  Status s = alternate(
      world, rounds, pace, gather, [&] { return jobs.launch(device::Kernel::gather_leaves); }, copy);
  if (s.ok()) s = jobs.launch(device::Kernel::gather_leaves);
  if (!s.ok()) return s;
  const auto hashes = jobs.hashes();
  if (!hashes.ok()) return hashes.status();
  if (hashes.value() != wanted) return {Code::damaged, "leaves were gathered wrong on the device"};
  push("gpu.device_gather", gather, "cuMemcpyAsync, device to device");
  Spans scatter;
  s = alternate(
      world, rounds, pace, scatter, [&] { return jobs.launch(device::Kernel::scatter_leaves); }, copy);
  if (!s.ok()) return s;
  push("gpu.device_scatter", scatter, "cuMemcpyAsync, device to device");
  Spans hash;
  s = alternate(
      world, rounds, pace, hash, [&] { return jobs.launch(device::Kernel::hash_leaves); },
      [&] { return beside.read(world.cache(), bytes, world.spare()); });
  if (!s.ok()) return s;
  push("gpu.hash", hash, "a kernel that reads as much");
  return {};
}

// Stores without a pause, one after the other, on a separate thread, until stop().
class Stores {
 public:
  Stores(GpuWorld& world, std::span<const device::LeafMove> leaves)
      : thread_([this, &world, leaves] {
          do {
            const auto seconds = world.gather(leaves);
            if (!seconds.ok()) {
              status_ = seconds.status();
              return;
            }
            seconds_.push_back(seconds.value());
          } while (!stop_.load(std::memory_order_relaxed));
        }) {}
  ~Stores() {
    if (thread_.joinable()) (void)stop();
  }
  Stores(const Stores&) = delete;
  Stores& operator=(const Stores&) = delete;
  // Returns the seconds of each store.
  Result<std::vector<double>> stop() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
    if (!status_.ok()) return status_;
    return std::move(seconds_);
  }

 private:
  Status status_;
  std::vector<double> seconds_;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last member, because it uses the others
};

// Returns the milliseconds of `repeats` products.
Result<double> products(GpuWorld& world, Beside& beside, uint32_t n, uint64_t repeats) {
  const uint64_t matrix = uint64_t{n} * n;
  return world.device_ms([&]() -> Status {
    for (uint64_t i = 0; i < repeats; ++i) {
      const Status s = beside.gemm(world.spare(), world.spare() + matrix * 2, world.spare() + matrix * 4, n);
      if (!s.ok()) return s;
    }
    return {};
  });
}

// Measures a matrix product alone and with stores beside it, and the stores' speed meanwhile.
Status store_beside_gemm(GpuWorld& world, Beside& beside, const GpuOptions& options, GpuPace& pace,
                         std::vector<Row>& rows) {
  const uint64_t mapped = world.transfers().gathers().mapped_leaves;
  const PagedShape shape = paged_shape(kKernelPage, world.bytes());
  const std::vector<device::LeafMove> leaves = world.leaves(shape, shape.blocks);
  uint32_t n = kLargestGemm;  // bf16 A and B and fp32 C: 8 bytes an element of one matrix
  while (n > kGemmTile && uint64_t{n} * n * 8 > world.bytes()) n -= kGemmTile;
  if (Status s = world.fill(world.spare(), 0, world.bytes()); !s.ok()) return s;
  const auto one = products(world, beside, n, 1);
  if (!one.ok()) return one.status();
  const auto repeats = static_cast<uint64_t>(std::clamp(kGemmSampleMs / std::max(one.value(), 0.01), 1.0, 1000.0));
  std::vector<double> alone;
  std::vector<double> with;
  std::vector<double> stores;
  std::vector<double> copies;
  pace.begin(options.rounds);
  while (pace.another()) {
    for (int turn = 0; turn < 2; ++turn) {
      const bool is_alone = (pace.round() + turn) % 2 == 0;
      std::unique_ptr<Stores> other;
      if (!is_alone) other = std::make_unique<Stores>(world, leaves);
      const auto ms = products(world, beside, n, repeats);
      if (!ms.ok()) return ms.status();
      (is_alone ? alone : with).push_back(ms.value() / static_cast<double>(repeats));
      if (is_alone) continue;
      const auto took = other->stop();
      if (!took.ok()) return took.status();
      stores.insert(stores.end(), took.value().begin(), took.value().end());
    }
    const auto copy = world.copy(world.host(world.records()), world.cache(), shape.bytes());
    if (!copy.ok()) return copy.status();
    copies.push_back(copy.value());
  }
  const double gigabytes = static_cast<double>(shape.bytes()) / 1e9;
  const double rate = gigabytes * 1e9 / median(copies);
  rows.push_back(
      bounded(less_is_better("gpu.store_beside_gemm", median(with), "ms", median(alone), "the product alone"),
              beside_bound(world.device().facts().multiprocessors, options.multiprocessors, rate,
                           world.transfers().gathers().mapped_leaves != mapped)));
  rows.push_back(more_is_better("gpu.gather_beside_gemm", gigabytes / median(stores), "GB/s",
                                gigabytes / median(copies), "cuMemcpyAsync, one piece, pinned, alone"));
  return {};
}

}  // namespace

Status bench_gpu_kernels(GpuWorld& world, const GpuOptions& options, GpuPace& pace, std::vector<Row>& rows) {
  auto beside = Beside::load(world);
  if (!beside.ok()) return beside.status();
  const Status s = on_device(world, *beside.value(), options.rounds, pace, rows);
  return s.ok() ? store_beside_gemm(world, *beside.value(), options, pace, rows) : s;
}

}  // namespace kvbm::benchmark
