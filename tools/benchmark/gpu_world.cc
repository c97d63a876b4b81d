#include "benchmark/gpu_world.h"

#include <algorithm>
#include <condition_variable>
#include <numeric>
#include <utility>

#include "base/crypto/random.h"
#include "benchmark/statistics.h"
#include "codec/record/record.h"
#include "device/context/device_link.h"
#include "device/transfer/transfer_work.h"
#include "manager/device/device_flight.h"

namespace kvbm::benchmark {

namespace {

constexpr uint64_t kWorldLayers = 32;
constexpr uint32_t kPinThreads = 4;

// Returns an order without a pattern, another one for each seed, so that pages that are neighbours in a record are
// none in the cache.
std::vector<uint64_t> shuffled(uint64_t n, uint64_t seed) {
  std::vector<uint64_t> order(n);
  std::iota(order.begin(), order.end(), uint64_t{0});
  SeededRandom random(seed);
  for (uint64_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

// Names the size in an error about too little memory. Other errors are unchanged.
Status of_bytes(const Status& why, const char* where, uint64_t bytes) {
  if (why.code() != Code::no_memory) return why;
  return {why.code(), "--bytes asks for more than there is",
          std::to_string(bytes) + " bytes of " + where + ": " + why.message()};
}

}  // namespace

PagedShape paged_shape(uint64_t page_bytes, uint64_t bytes) {
  PagedShape shape;
  shape.page_bytes = page_bytes;
  shape.layers = std::clamp<uint64_t>(bytes / (2 * page_bytes), 1, kWorldLayers);
  shape.blocks = std::max<uint64_t>(1, bytes / shape.block_bytes());
  return shape;
}

Result<std::unique_ptr<GpuWorld>> GpuWorld::open(const device::Driver& driver, const GpuOptions& options) {
  auto world = std::unique_ptr<GpuWorld>(new GpuWorld(driver));
  if (Status s = world->prepare(options); !s.ok()) return s;
  return world;
}

Status GpuWorld::prepare(const GpuOptions& options) {
  bytes_ = options.bytes;
  auto device = device::Device::open(driver_, options.device, &log_);
  if (!device.ok()) return device.status();
  device_ = std::move(device).value();
  ArenaOptions arena;
  arena.bytes = bytes_;
  arena.touch_threads = kPinThreads;
  auto records = Arena::map(arena);
  if (!records.ok()) return of_bytes(records.status(), "the host's memory", bytes_);
  records_ = std::move(records).value();
  auto pinned = device::PinnedHost::pin(device_, {records_->data(), bytes_}, kPinThreads);
  if (!pinned.ok()) return pinned.status();
  pinned_ = std::move(pinned).value();
  auto executor = ThreadExecutor::create("bench", 1);
  if (!executor.ok()) return executor.status();
  executor_ = std::move(executor).value();
  transfer_options_.multiprocessors = options.multiprocessors;
  transfer_options_.plan.staged_run_bytes = device::staged_run_of_link(device_->facts().pci);
  if (Status s = use(nullptr); !s.ok()) return s;
  const device::Device::Scope scope(*device_);
  Status s = device_->check(driver_.cuMemAlloc(&cache_, bytes_), "cuMemAlloc");
  if (s.ok()) s = device_->check(driver_.cuMemAlloc(&spare_, bytes_), "cuMemAlloc");
  if (!s.ok()) return of_bytes(s, "the device's memory, twice", bytes_);
  s = device_->check(driver_.cuStreamCreateWithPriority(&stream_, device::kCuStreamNonBlocking, 0), "cuStreamCreate");
  if (s.ok()) s = device_->check(driver_.cuEventCreate(&from_, device::kCuEventBlockingSync), "cuEventCreate");
  if (s.ok()) s = device_->check(driver_.cuEventCreate(&to_, device::kCuEventBlockingSync), "cuEventCreate");
  return s;
}

Status GpuWorld::use(const device::PlanLimits* limits) {
  transfers_.reset();
  device::TransferOptions options = transfer_options_;
  if (limits != nullptr) options.plan = *limits;
  auto transfers = device::Transfers::create(device_, options, *executor_);
  if (!transfers.ok()) return transfers.status();
  transfers_ = std::move(transfers).value();
  transfers_->know(pinned_);
  return {};
}

void GpuWorld::keep_first(void* self, const LogMessage& message) {
  auto& world = *static_cast<GpuWorld*>(self);
  const std::lock_guard<std::mutex> lock(world.mutex_);
  if (!world.complaint_.empty()) return;
  world.complaint_ = ": " + std::string(message.text);
  for (size_t i = 0; i < message.n_fields; ++i) {
    world.complaint_.append(", ").append(message.fields[i].key).append(" ").append(message.fields[i].value);
  }
}

GpuWorld::~GpuWorld() {
  transfers_.reset();
  executor_.reset();
  if (device_ == nullptr) return;
  {
    const device::Device::Scope scope(*device_);
    if (from_ != nullptr) (void)driver_.cuEventDestroy(from_);
    if (to_ != nullptr) (void)driver_.cuEventDestroy(to_);
    if (stream_ != nullptr) (void)driver_.cuStreamDestroy(stream_);
    if (cache_ != 0) (void)driver_.cuMemFree(cache_);
    if (spare_ != 0) (void)driver_.cuMemFree(spare_);
  }
  pinned_.reset();
}

std::string GpuWorld::describe() const {
  const device::DeviceFacts& facts = device_->facts();
  return facts.name + " at " + facts.pci + ", compute capability " + std::to_string(facts.major) + "." +
         std::to_string(facts.minor) + ", " + std::to_string(facts.multiprocessors) +
         " multiprocessors, a driver of CUDA " + std::to_string(facts.driver_version / 1000) + "." +
         std::to_string(facts.driver_version % 1000 / 10);
}

namespace {

// Returns the run of the leaf `at` bytes into its page, of one tensor's block.
StridedRun leaf_run(const PagedShape& shape, uint64_t page, uint64_t at, uint64_t leaf_bytes) {
  StridedRun run;
  if (shape.row_bytes == 0) {
    run.data = reinterpret_cast<std::byte*>(page + at);
    run.bytes = leaf_bytes;
    return run;
  }
  // The leaf holds whole heads, each with all its tokens.
  const uint64_t token_bytes = shape.row_bytes * shape.heads;
  const uint64_t tokens = shape.page_bytes / token_bytes;
  run.data = reinterpret_cast<std::byte*>(page + at / tokens);
  run.bytes = shape.row_bytes;
  run.count0 = static_cast<uint32_t>(leaf_bytes / (shape.row_bytes * tokens));
  run.stride0 = static_cast<int64_t>(shape.row_bytes);
  run.count1 = static_cast<uint32_t>(tokens);
  run.stride1 = static_cast<int64_t>(token_bytes);
  return run;
}

uint64_t leaf_bytes_of(const PagedShape& shape) { return std::min<uint64_t>(shape.page_bytes, codec::kMaxLeafBytes); }

}  // namespace

std::vector<device::LeafMove> GpuWorld::leaves(const PagedShape& shape, uint64_t blocks) {
  std::vector<device::LeafMove> out;
  std::vector<uint64_t> page_of = shuffled(shape.blocks, shape.blocks);
  const std::vector<uint64_t> record_of = shuffled(shape.blocks, ~shape.blocks);
  const uint64_t leaf_bytes = leaf_bytes_of(shape);
  out.reserve(blocks * shape.layers * 2 * (shape.page_bytes / leaf_bytes));
  for (uint64_t block = 0; block < blocks; ++block) {
    std::byte* record = records_->data() + record_of[block] * shape.block_bytes();
    for (uint64_t tensor = 0; tensor < shape.layers * 2; ++tensor) {
      const uint64_t page = cache_ + (tensor * shape.blocks + page_of[block]) * shape.page_bytes;
      for (uint64_t at = 0; at < shape.page_bytes; at += leaf_bytes, record += leaf_bytes) {
        device::LeafMove move;
        move.record = record;
        move.device = leaf_run(shape, page, at, leaf_bytes);
        out.push_back(move);
      }
    }
  }
  describe(shape, std::move(page_of));
  return out;
}

void GpuWorld::describe(const PagedShape& shape, std::vector<uint64_t> page_of) {
  table_ = std::make_unique<device::LeafTable>();
  const uint64_t leaf_bytes = leaf_bytes_of(shape);
  uint32_t offset = 0;
  for (uint64_t tensor = 0; tensor < shape.layers * 2; ++tensor) {
    const uint64_t page = cache_ + tensor * shape.blocks * shape.page_bytes;
    for (uint64_t at = 0; at < shape.page_bytes; at += leaf_bytes, offset += static_cast<uint32_t>(leaf_bytes)) {
      table_->add(leaf_run(shape, page, at, leaf_bytes), leaf_run(shape, page + shape.page_bytes, at, leaf_bytes),
                  offset, static_cast<uint32_t>(tensor / 2), 0);
    }
  }
  table_->finish();
  page_of_ = std::move(page_of);
}

// Returns whether these leaves are unchanged leaves of the last description.
bool GpuWorld::is_described(std::span<const device::LeafMove> leaves) const {
  if (table_ == nullptr || leaves.size() % table_->size() != 0) return false;
  for (size_t i = 0; i < leaves.size(); i += table_->size()) {
    const auto block = static_cast<uint32_t>(page_of_[i / table_->size()]);
    if (leaves[i].codec != codec::LeafCodec::raw || leaves[i].device.data != table_->run(0, block).data) return false;
  }
  return true;
}

// Fills a batch like the library. Returns how many of the leaves are in it.
size_t GpuWorld::fill_batch(std::span<const device::LeafMove> leaves, size_t first, bool many, bool checked,
                            device::TransferBatch& batch) const {
  using Flight = manager::DeviceFlight;
  size_t at = first;
  for (uint64_t bytes = 0; at < leaves.size() && at - first < Flight::kBatchLeaves && bytes < Flight::kBatchBytes;) {
    if (!many) {
      bytes += leaves[at].device.total();
      batch.leaves.push_back(leaves[at++]);
      continue;
    }
    device::LeafMove move;
    move.table = table_.get();
    move.block = static_cast<uint32_t>(page_of_[at / table_->size()]);
    move.first_leaf = static_cast<uint32_t>(at % table_->size());
    move.leaf_count = table_->group_end(move.first_leaf) - move.first_leaf;
    move.device = device::LeafMove::table_run(*table_, move.first_leaf, move.leaf_count, move.block);
    move.record = leaves[at].record;
    move.check = checked;
    move.expected = batch.expected.size();
    for (uint32_t i = 0; checked && i < move.leaf_count; ++i) batch.expected.push_back(leaves[at + i].expected);
    bytes += move.device.total();
    at += move.leaf_count;
    batch.leaves.push_back(move);
  }
  return at - first;
}

double GpuWorld::planning(std::span<const device::LeafMove> leaves, bool gather) const {
  constexpr int kTries = 3;
  constexpr size_t kPartLeaves = 2048;  // of the library's parts
  const std::vector<std::shared_ptr<const device::PinnedHost>> known{pinned_};
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const ThreadStopwatch watch;
    device::TransferBatch batch;
    (void)fill_batch(leaves, 0, is_described(leaves), !gather, batch);
    const auto work =
        device::make_work(std::move(batch), gather ? device::Direction::gather : device::Direction::scatter, known,
                          transfer_options_.plan, static_cast<uint32_t>(transfer_options_.part_bytes), kPartLeaves);
    const double took = watch.seconds();
    if (i == 0 || took < best) best = took;
  }
  return best;
}

Result<double> GpuWorld::move(std::span<const device::LeafMove> leaves, bool gather, std::vector<uint64_t>* hashes) {
  struct Away {
    std::mutex mutex;
    std::condition_variable changed;
    size_t batches = 0;
    Code code = Code::ok;
    bool good = true;
  };
  const auto away = std::make_shared<Away>();
  if (hashes != nullptr) hashes->assign(leaves.size(), 0);
  const Stopwatch watch;
  const ThreadStopwatch own;
  const bool many = is_described(leaves);
  for (size_t first = 0, n = 0; first < leaves.size(); first += n) {
    device::TransferBatch batch;
    n = fill_batch(leaves, first, many, !gather, batch);
    batch.done = [away, hashes, first](device::TransferBatch& done, Code code) {
      if (hashes != nullptr)
        std::copy(done.hashes.begin(), done.hashes.end(), hashes->begin() + static_cast<std::ptrdiff_t>(first));
      const bool good = std::all_of(done.good.begin(), done.good.end(), [](uint8_t one) { return one != 0; });
      const std::lock_guard<std::mutex> lock(away->mutex);
      if (code != Code::ok) away->code = code;
      away->good = away->good && good;
      --away->batches;
      away->changed.notify_one();
    };
    {
      std::unique_lock<std::mutex> lock(away->mutex);
      away->changed.wait(lock, [&] { return away->batches < manager::DeviceFlight::kBatches; });
      ++away->batches;
    }
    gather ? transfers_->gather(std::move(batch)) : transfers_->scatter(std::move(batch));
    worked_ = own.seconds();
  }
  std::unique_lock<std::mutex> lock(away->mutex);
  away->changed.wait(lock, [&] { return away->batches == 0; });
  const double seconds = watch.seconds();
  if (away->code != Code::ok) {
    const std::lock_guard<std::mutex> said(mutex_);
    return Status(away->code, "a transfer failed", (gather ? "gather" : "scatter") + complaint_);
  }
  if (!away->good) return Status(Code::damaged, "a leaf did not arrive as it was sent");
  return seconds;
}

Result<double> GpuWorld::gather(std::span<const device::LeafMove> leaves, std::vector<uint64_t>* hashes) {
  return move(leaves, true, hashes);
}

Result<double> GpuWorld::scatter(std::span<const device::LeafMove> leaves) { return move(leaves, false, nullptr); }

Result<double> GpuWorld::copy(device::CuPointer to, device::CuPointer from, uint64_t bytes) {
  const device::Device::Scope scope(*device_);
  const Stopwatch watch;
  Status s = device_->check(driver_.cuMemcpyAsync(to, from, bytes, stream_), "cuMemcpyAsync");
  if (s.ok()) s = device_->check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  const double seconds = watch.seconds();
  return s.ok() ? Result<double>(seconds) : s;
}

Status GpuWorld::fill(device::CuPointer to, unsigned char value, uint64_t bytes) {
  const device::Device::Scope scope(*device_);
  Status s = device_->check(driver_.cuMemsetD8Async(to, value, bytes, stream_), "cuMemsetD8Async");
  if (s.ok()) s = device_->check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  return s;
}

Status GpuWorld::begin_span() {
  const device::Device::Scope scope(*device_);
  return device_->check(driver_.cuEventRecord(from_, stream_), "cuEventRecord");
}

Result<double> GpuWorld::end_span() {
  const device::Device::Scope scope(*device_);
  Status s = device_->check(driver_.cuEventRecord(to_, stream_), "cuEventRecord");
  if (s.ok()) s = device_->check(driver_.cuEventSynchronize(to_), "cuEventSynchronize");
  float ms = 0;
  if (s.ok()) s = device_->check(driver_.cuEventElapsedTime(&ms, from_, to_), "cuEventElapsedTime");
  return s.ok() ? Result<double>(static_cast<double>(ms)) : s;
}

}  // namespace kvbm::benchmark
