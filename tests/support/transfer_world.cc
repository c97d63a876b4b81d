#include "support/transfer_world.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"
#include "support/cuda_emulation/fake_kernels.h"

namespace kvbm::test {

UniqueFunction<void(device::TransferBatch&, Code)> Outcome::receiver() {
  return [state = state_](device::TransferBatch& batch, Code code) {
    MutexLock lock(state->mutex);
    ++state->calls;
    state->code = code;
    state->hashes = std::move(batch.hashes);
    state->good = std::move(batch.good);
    state->ended.notify_all();
  };
}

Code Outcome::wait() {
  MutexLock lock(state_->mutex);
  while (state_->calls == 0) state_->ended.wait(state_->mutex);
  hashes = state_->hashes;
  good = state_->good;
  return state_->code;
}

bool Outcome::over() { return calls() > 0; }

int Outcome::calls() {
  MutexLock lock(state_->mutex);
  return state_->calls;
}

std::shared_ptr<void> Keepsake::give() {
  return {state_.get(), [state = state_](void*) {
            MutexLock lock(state->mutex);
            state->dropped = true;
            state->changed.notify_all();
          }};
}

bool Keepsake::dropped() {
  MutexLock lock(state_->mutex);
  return state_->dropped;
}

void Keepsake::wait_dropped() {
  MutexLock lock(state_->mutex);
  while (!state_->dropped) state_->changed.wait(state_->mutex);
}

void HandTimed::post_at(uint64_t when_ns, Task task) {
  MutexLock lock(mutex_);
  timers_.push(when_ns, std::move(task));
}

void HandTimed::advance(uint64_t ns) {
  const uint64_t now = clock_.now.fetch_add(ns, std::memory_order_relaxed) + ns;
  for (;;) {
    Task due;
    {
      MutexLock lock(mutex_);
      if (timers_.first_ns() > now) return;
      due = timers_.pop();
    }
    due();
  }
}

void TransferWorld::Free::operator()(std::byte* p) const { std::free(p); }

device::TransferOptions TransferWorld::small_options() {
  device::TransferOptions options;
  options.part_bytes = 64U << 10;
  options.staging_bytes = 16 * options.part_bytes;
  options.multiprocessors = 3;
  options.stall_ns = kNever;  // kernels on the CPU take as long as they take
  return options;
}

FakeCudaOptions TransferWorld::two_devices() {
  FakeCudaOptions options;
  options.devices.resize(2);
  return options;
}

TransferWorld::TransferWorld(uint64_t seed, size_t all)
    : bytes(all), random(seed), loose(all), arena_(static_cast<std::byte*>(std::aligned_alloc(4096, all))) {
  add_emulated_kernels(cuda);
  auto made = ThreadExecutor::create("test", 2);
  if (made.ok()) executor = std::move(made).value();
  pages = reinterpret_cast<std::byte*>(cuda.allocate(1, bytes));
  pinned = arena_.get();
  fill_pages();
  fill_records();
}

TransferWorld::~TransferWorld() { close(); }

Status TransferWorld::open(const device::TransferOptions& options) { return open_on(options, *executor); }

Status TransferWorld::open_timed(const device::TransferOptions& options) {
  timers = std::make_unique<HandTimed>(*executor);
  return open_on(options, *timers);
}

Status TransferWorld::open_on(const device::TransferOptions& options, Executor& on) {
  auto opened = device::Device::open(cuda.driver(), 1, nullptr, options.stall_ns);
  if (!opened.ok()) return opened.status();
  device = std::move(opened).value();
  std::vector<std::shared_ptr<const device::PinnedHost>> known;
  for (size_t at = 0; at < bytes; at += range) {
    auto memory = device::PinnedHost::pin(device, MutableBytes(pinned + at, range), 1);
    if (!memory.ok()) return memory.status();
    known.push_back(std::move(memory).value());
  }
  auto made = device::Transfers::create(device, options, on);
  if (!made.ok()) return made.status();
  transfers = std::move(made).value();
  for (auto& memory : known) transfers->know(std::move(memory));
  return {};
}

void TransferWorld::close() {
  transfers.reset();
  executor.reset();  // a task that has just ended may hold the last of it
  device.reset();
}

void TransferWorld::fill_records() {
  random.fill(MutableBytes(pinned, bytes));
  random.fill(loose);
}

std::vector<device::LeafMove> TransferWorld::make_leaves(size_t most, uint64_t most_bytes, uint32_t loose_share,
                                                         bool flat) {
  std::vector<device::LeafMove> leaves;
  uint64_t page = 0, record = 0;
  for (size_t i = 0; i < most; ++i) {
    device::LeafMove leaf;
    StridedRun& run = leaf.device;
    if (flat) {
      run.bytes = 16 + random.below(codec::kMaxLeafBytes - 16);
    } else {
      run.bytes = 1 + random.below(random.below(3) == 0 ? 9000 : 700);
      run.count0 = static_cast<uint32_t>(1 + random.below(6));
      run.count1 = static_cast<uint32_t>(1 + random.below(5));
      run.stride1 = static_cast<int64_t>(run.bytes + (random.below(2) == 0 ? 0 : random.below(300)));
      run.stride0 = run.stride1 * run.count1 + static_cast<int64_t>(random.below(2) == 0 ? 0 : random.below(300));
      if (run.total() > codec::kMaxLeafBytes) run.count0 = 1;
      if (run.total() > codec::kMaxLeafBytes) run.count1 = 1;
    }
    const uint64_t extent = flat ? run.bytes : static_cast<uint64_t>(run.stride0) * run.count0;
    if (!flat || random.below(10) == 0) page += random.below(500);
    if (random.below(flat ? 12 : 5) == 0) record += random.below(500);
    if (page + extent > most_bytes || record + run.total() > bytes) break;
    run.data = pages + page;
    leaf.record = (random.below(100) < loose_share ? loose.data() : pinned) + record;
    page += extent;
    record += run.total();
    leaves.push_back(leaf);
  }
  return leaves;
}

std::vector<std::byte> TransferWorld::pages_of(const device::LeafMove& leaf) {
  std::vector<std::byte> bytes(leaf.device.total());
  std::byte* to = bytes.data();
  for (uint32_t a = 0; a < leaf.device.count0; ++a) {
    for (uint32_t b = 0; b < leaf.device.count1; ++b, to += leaf.device.bytes) {
      std::memcpy(to, leaf.device.data + a * leaf.device.stride0 + b * leaf.device.stride1, leaf.device.bytes);
    }
  }
  return bytes;
}

void TransferWorld::expect_records(std::vector<device::LeafMove>& leaves) {
  for (device::LeafMove& leaf : leaves) leaf.expected = codec::leaf_hash(ConstBytes(leaf.record, leaf.device.total()));
}

Outcome TransferWorld::gather(device::TransferBatch batch) {
  Outcome outcome;
  batch.done = outcome.receiver();
  transfers->gather(std::move(batch));
  return outcome;
}

Outcome TransferWorld::scatter(device::TransferBatch batch) {
  Outcome outcome;
  batch.done = outcome.receiver();
  transfers->scatter(std::move(batch));
  return outcome;
}

}  // namespace kvbm::test
