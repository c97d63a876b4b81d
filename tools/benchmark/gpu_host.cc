#include "benchmark/gpu_host.h"

#include <sys/mman.h>
#include <time.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/crypto/random.h"
#include "base/io/os_file.h"
#include "base/telemetry/log.h"
#include "base/thread/thread_executor.h"
#include "benchmark/free_driver.h"
#include "benchmark/statistics.h"
#include "layout/engine_forms.h"
#include "manager/device/device_caches.h"
#include "manager/manager.h"
#include "manager/operation/cache.h"
#include "manager/operation/load.h"
#include "manager/operation/lookup.h"
#include "manager/operation/store.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

namespace {

constexpr uint32_t kTokens = 16;
constexpr uint32_t kBlocks = 256;
constexpr double kWire = 55e9;  // bytes per second: PCIe 5 x16
constexpr const char* kWireName = "the wire, 55 GB/s";

struct Model {
  const char* name;
  layout::ComponentGeometry geometry;
};

std::vector<Model> models() {
  return {{"8b", layout::attention(32, 8, 128, layout::Element::bf16)},
          {"70b_tp8", layout::attention(80, 1, 128, layout::Element::bf16)},
          {"mla", layout::latent(61, 576, layout::Element::bf16)}};
}

// Reserved addresses in the role of device memory: nothing reads or writes them.
class Reserved {
 public:
  explicit Reserved(uint64_t bytes) : bytes_(bytes) {
    void* const at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) data_ = static_cast<std::byte*>(at);
  }
  ~Reserved() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_;
};

double process_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

// Figures of one kind of call, per block.
struct Figures {
  std::vector<double> wall, work;
  double calls = 0;
};

// An engine with a cache of one model on the device that costs nothing.
class HostWorld {
 public:
  static Result<std::unique_ptr<HostWorld>> open(const Model& model) {
    auto out = std::unique_ptr<HostWorld>(new HostWorld());
    if (Status s = out->make(model); !s.ok()) return s;
    return out;
  }
  ~HostWorld() {
    cache_.reset();
    ns_.reset();
    if (manager_ == nullptr) return;
    Ending ending;
    manager_->shutdown([&ending] { ending.end({}); });
    (void)ending.wait();
    manager_.reset();
    executor_.reset();
  }
  HostWorld(const HostWorld&) = delete;
  HostWorld& operator=(const HostWorld&) = delete;

  [[nodiscard]] uint64_t block_bytes() const noexcept { return block_bytes_; }

  // Stores all blocks under new names, and adds the figures to `out`.
  Status store(Figures& out) {
    first_key_ += kBlocks;
    manager::StoreRequest request;
    request.cache = cache_;
    request.keys = keys();
    request.block_ids = ids();
    return timed_call<manager::StoreOperation>(std::move(request), out);
  }

  Status load(Figures& out, bool by_layers) {
    const auto plans = cache_->plans();
    if (!plans.ok()) return plans.status();
    manager::LoadRequest request;
    request.cache = cache_;
    request.match = manager::look_up(manager_->stack().keep(), ns_, plans.value(), keys(), {});
    if (request.match == nullptr || request.match->hits() != kBlocks)
      return {Code::internal, "what was stored is not found"};
    request.n_ids = kBlocks;
    request.block_ids = ids();
    if (by_layers) {
      auto marks = cache_->mark_layers(0, 0, false);
      if (!marks.ok()) return marks.status();
      request.layers = std::move(marks).value();
    }
    return timed_call<manager::LoadOperation>(std::move(request), out);
  }

 private:
  struct Ending {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    copy::Completion completion;
    void end(const copy::Completion& said) {
      const std::lock_guard<std::mutex> lock(mutex);
      completion = said;
      over = true;
      changed.notify_one();
    }
    copy::Completion wait() {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [this] { return over; });
      return completion;
    }
  };

  HostWorld() = default;

  Status make(const Model& model) {
    auto executor = ThreadExecutor::create("bench", 2);
    if (!executor.ok()) return executor.status();
    executor_ = std::move(executor).value();
    auto files = make_os_file_system(*executor_);
    if (!files.ok()) return files.status();
    files_ = std::move(files).value();
    auto geometry = layout::Geometry::make(kTokens, {model.geometry});
    if (!geometry.ok()) return geometry.status();
    block_bytes_ = kTokens * geometry.value().bytes_per_token();
    manager::Options options;
    options.host.block_bytes = block_bytes_;
    options.host.capacity_bytes = 2 * kBlocks * (block_bytes_ + tier::HostArena::head_stride(block_bytes_)) + (1 << 20);
    options.device.driver = &free_driver();
    manager::Environment environment;
    environment.executor = executor_.get();
    environment.files = files_.get();
    environment.random = &random_;
    environment.log = &log_;
    auto manager = manager::Manager::create(environment, std::move(options));
    if (!manager.ok()) return manager.status();
    manager_ = std::move(manager).value();
    manager::NamespaceOptions who;
    who.model = model.name;
    who.geometry = std::make_shared<const layout::Geometry>(std::move(geometry).value());
    auto ns = manager_->namespaces().open(std::move(who));
    if (!ns.ok()) return ns.status();
    ns_ = std::move(ns).value();
    return attach();
  }

  // Attaches tensors in vLLM's order, each at a separate allocation's address.
  Status attach() {
    auto plan = ns_->plan({});
    if (!plan.ok()) return plan.status();
    const uint64_t bytes = block_bytes_ * kBlocks;
    memory_ = std::make_unique<Reserved>(bytes);
    if (memory_->data() == nullptr) return {Code::no_memory, "no addresses for a cache"};
    free_driver_owns(memory_->data(), bytes);
    const uint32_t n = layout::form_tensors(layout::Form::nhd, *plan.value().shape);
    std::vector<layout::Tensor> tensors;
    for (uint32_t i = 0; i < n; ++i) tensors.push_back({memory_->data() + i * (bytes / n), bytes / n});
    auto arrangement = layout::arrange(layout::Form::nhd, *plan.value().shape, kBlocks, tensors);
    if (!arrangement.ok()) return arrangement.status();
    auto part = manager::CachePart::shaped(std::move(plan).value(), std::move(arrangement).value());
    if (!part.ok()) return part.status();
    const manager::TensorPlace place{memory_->data(), bytes, 0, 0};
    auto device = manager_->devices().place(manager::MemoryKind::cuda, 0, {&place, 1});
    if (!device.ok()) return device.status();
    std::vector<manager::CachePart> parts;
    parts.push_back(std::move(part).value());
    auto cache = manager::Cache::create(manager_->stack().keep(), ns_, std::move(parts), std::move(device).value());
    if (!cache.ok()) return cache.status();
    cache_ = std::move(cache).value();
    return {};
  }

  [[nodiscard]] std::vector<Key> keys() const {
    std::vector<Key> out(kBlocks);
    for (size_t i = 0; i < out.size(); ++i) {
      const uint64_t value = first_key_ + i;
      std::memcpy(out[i].bytes.data(), &value, sizeof value);
    }
    return out;
  }
  // Returns the blocks in an order without a pattern, like an engine's free list.
  static std::vector<uint32_t> ids() {
    std::vector<uint32_t> out(kBlocks);
    for (uint32_t i = 0; i < kBlocks; ++i) out[i] = i * 167 % kBlocks;
    return out;
  }

  template <class Operation, class Request>
  Status timed_call(Request request, Figures& out) {
    std::vector<int32_t> status(kBlocks, 1);
    request.item_status = status;
    const auto ending = std::make_shared<Ending>();
    const uint64_t before = free_driver_calls();
    const double work = process_seconds();
    const Stopwatch watch;
    auto operation = std::make_shared<Operation>(std::move(request));
    operation->start([ending](const copy::Completion& said) { ending->end(said); });
    operation.reset();
    const copy::Completion said = ending->wait();
    out.wall.push_back(watch.seconds() * 1e6 / kBlocks);
    out.work.push_back((process_seconds() - work) * 1e6 / kBlocks);
    out.calls = static_cast<double>(free_driver_calls() - before) / kBlocks;
    if (said.status != Code::ok || said.items_done != kBlocks) return {Code::internal, "a block was not moved"};
    return {};
  }

  SystemRandom random_;
  Log log_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<Reserved> memory_;
  std::shared_ptr<manager::Manager> manager_;
  std::shared_ptr<manager::Namespace> ns_;
  std::shared_ptr<manager::Cache> cache_;
  uint64_t block_bytes_ = 0;
  uint64_t first_key_ = 1;
};

void add_rows(const std::string& what, const Figures& figures, uint64_t bytes, std::vector<Row>& rows) {
  const double wire = static_cast<double>(bytes) / kWire * 1e6;
  rows.push_back(less_is_better("gpu.host." + what, median(figures.wall), "us", wire, kWireName));
  rows.push_back(less_is_better("gpu.host." + what + ".work", median(figures.work), "us", wire, kWireName));
  rows.push_back({"gpu.host." + what + ".calls", figures.calls, "", {}, "", {}});
}

}  // namespace

Result<std::vector<Row>> bench_gpu_host(const GpuHostOptions& options) {
  std::vector<Row> rows;
  const std::vector<Model> all = models();
  terminal::Progress progress("moving", all.size() * static_cast<uint64_t>(options.rounds), terminal::Unit::items,
                              options.quiet);
  for (const Model& model : all) {
    auto made = HostWorld::open(model);
    if (!made.ok()) return made.status();
    HostWorld& world = *made.value();
    Figures store, load, layers;
    for (int round = 0; round < options.rounds; ++round) {
      Status s = world.store(store);
      if (s.ok()) s = world.load(load, false);
      if (s.ok()) s = world.load(layers, true);
      if (!s.ok()) return s;
      progress.advance(1);
    }
    add_rows(std::string("store.") + model.name, store, world.block_bytes(), rows);
    add_rows(std::string("load.") + model.name, load, world.block_bytes(), rows);
    add_rows(std::string("load_layers.") + model.name, layers, world.block_bytes(), rows);
  }
  progress.finish();
  return rows;
}

}  // namespace kvbm::benchmark
