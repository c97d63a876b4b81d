#include "support/cuda_emulation/block_runner.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace kvbm::emulation {
namespace {

constexpr unsigned kBarriers = 16;
// Limit for a thread that waits for another by sleeping again and again.
constexpr uint64_t kMostSpins = 50'000'000;

// Unwinds the thread of a block that has failed.
struct Stopped {};

std::string text_of(const Dim& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

std::string text_of(const Site& site) {
  return std::string(site.what) + " (" + site.file + ":" + std::to_string(site.line) + ")";
}

// Compares by content, because two operations are one only if they are in one place of the source. The pointers are
// compared first: literals are mostly one object, and each lane compares at each operation.
bool same(const Site& a, const Site& b) {
  if (a.line != b.line) return false;
  if (a.what == b.what && a.file == b.file) return true;
  return std::string_view(a.what) == b.what && std::string_view(a.file) == b.file;
}

size_t volume(const Dim& d) { return size_t{d.x} * d.y * d.z; }

}  // namespace

BlockRunner::BlockRunner() : barriers_(kBarriers) {}
BlockRunner::~BlockRunner() = default;

uint64_t BlockRunner::random() {  // SplitMix64
  uint64_t z = random_ += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::string BlockRunner::name_of(const Thread& thread) const {
  return "thread " + text_of(thread.where.thread) + " of block " + text_of(thread.where.block);
}

void BlockRunner::thread_main(void* thread) {
  auto& self = *static_cast<Thread*>(thread);
  try {
    (*self.runner->body_)();
  } catch (const Stopped&) {  // the runner reads outcome_ and resumes no thread any more
  }
  self.state = State::ended;
  ++self.runner->ended_;
  self.fiber.finish();
}

Outcome BlockRunner::run(const LaunchShape& shape, const Options& options, Dim block,
                         const std::function<void()>& body) {
  t_runner = this;
  options_ = &options;
  random_ = options.order_seed ^ uint64_t { block.x } << 32 ^ uint64_t { block.y } << 16 ^ block.z;
  body_ = &body;
  n_threads_ = volume(shape.block);
  shared_.reset(new unsigned char[shape.shared_bytes + 16]);
  std::fill_n(shared_.get(), shape.shared_bytes, static_cast<unsigned char>(0xA5));
  for (Barrier& barrier : barriers_) barrier.waiting.clear();
  // Discards exchanges that a block left open when it failed.
  for (auto& of_warp : exchanges_) {
    for (auto& x : of_warp) x->arrived = x->readers = 0;
  }
  exchanges_.resize(std::max(exchanges_.size(), (n_threads_ + kWarp - 1) / kWarp));
  while (threads_.size() < n_threads_) threads_.push_back(std::make_unique<Thread>());
  order_.resize(n_threads_);
  for (unsigned i = 0; i < n_threads_; ++i) {
    order_[i] = i;
    Thread& thread = *threads_[i];
    thread.runner = this;
    thread.index = i;
    thread.state = State::ready;
    thread.exchange = nullptr;
    const Dim& b = shape.block;
    thread.where = {{i % b.x, i / b.x % b.y, i / b.x / b.y}, block, b, shape.grid};
    thread.fiber.start(&BlockRunner::thread_main, &thread);
  }
  ended_ = 0;
  spins_ = 0;
  outcome_ = {};
  while (ended_ < n_threads_ && outcome_.ok()) {
    moved_ = false;
    turn();
    if (!moved_ && outcome_.ok()) outcome_ = stuck();
  }
  current_ = nullptr;
  t_runner = nullptr;
  return outcome_;
}

void BlockRunner::turn() {
  const bool drawn = options_->order_seed != 0;
  if (drawn) {
    for (size_t i = n_threads_; i > 1; --i) std::swap(order_[i - 1], order_[(random() >> 32) * i >> 32]);
  }
  for (const unsigned i : order_) {
    Thread& thread = *threads_[i];
    if (thread.state != State::ready) continue;
    moved_ = true;
    if (drawn && random() % 4 == 0) continue;  // other threads run ahead of it
    current_ = &thread;
    thread.fiber.resume();
    if (!outcome_.ok()) return;
  }
}

void BlockRunner::suspend_current() {
  Thread& self = *current_;
  self.fiber.suspend();
  // Returns here when the runner has made this thread current again.
}

void BlockRunner::make_ready(Thread& thread) {
  thread.state = State::ready;
  spins_ = 0;
}

void BlockRunner::fail(Outcome::Kind kind, std::string text) {
  outcome_ = {kind, name_of(*current_) + ": " + std::move(text)};
  throw Stopped{};
}

void BlockRunner::barrier(unsigned id, unsigned count, const Site& site) {
  if (id >= kBarriers) fail(Outcome::Kind::trapped, text_of(site) + ": there are 16 barriers");
  Barrier& barrier = barriers_[id];
  const auto expected = static_cast<unsigned>(count == 0 ? n_threads_ : count);
  if (expected > n_threads_ || expected % kWarp != 0) {
    if (count != 0)
      fail(Outcome::Kind::trapped, text_of(site) + ": waits for " + std::to_string(expected) + " threads");
  }
  if (barrier.waiting.empty()) {
    barrier.expected = expected;
    barrier.site = site;
  } else if (!same(barrier.site, site) || barrier.expected != expected) {
    fail(Outcome::Kind::divergent, "is at " + text_of(site) + " while others are at " + text_of(barrier.site));
  }
  Thread& self = *current_;
  self.site = site;
  barrier.waiting.push_back(&self);
  if (barrier.waiting.size() < expected) {
    self.state = State::waits;
    suspend_current();
    return;
  }
  for (Thread* thread : barrier.waiting) make_ready(*thread);
  barrier.waiting.clear();
}

BlockRunner::Exchange& BlockRunner::open_exchange(unsigned warp, unsigned mask, const Site& site) {
  const unsigned bit = 1U << current_->index % kWarp;
  if ((mask & bit) == 0) fail(Outcome::Kind::divergent, text_of(site) + ": its mask leaves out the thread itself");
  std::unique_ptr<Exchange>* spare = nullptr;
  for (auto& entry : exchanges_[warp]) {
    Exchange& x = *entry;
    if (x.readers == 0 && x.arrived == 0) {
      spare = &entry;
      continue;
    }
    if (x.arrived == x.mask) continue;
    if (x.mask == mask && same(x.site, site)) return x;
    // Lanes that wait for each other in different operations can never meet. If one of them has not arrived yet, they
    // still may.
    if ((x.mask & bit) != 0 && (x.arrived & mask) != 0) {
      fail(Outcome::Kind::divergent, "is at " + text_of(site) + " while others of its warp are at " + text_of(x.site));
    }
  }
  if (spare == nullptr) spare = &exchanges_[warp].emplace_back(std::make_unique<Exchange>());
  Exchange& x = **spare;
  x.mask = mask;
  x.site = site;
  return x;
}

// Returns when all lanes of `mask` have arrived.
BlockRunner::Exchange& BlockRunner::meet(unsigned mask, uint64_t value, const Site& site, Combine of_all) {
  Thread& self = *current_;
  const unsigned lane = self.index % kWarp;
  const unsigned warp = self.index / kWarp;
  const size_t lanes = std::min<size_t>(kWarp, n_threads_ - size_t{warp} * kWarp);
  if (lanes < kWarp) mask &= (1U << lanes) - 1;
  Exchange& x = open_exchange(warp, mask, site);
  x.values[lane] = value;
  x.arrived |= 1U << lane;
  ++x.readers;
  self.site = site;
  self.exchange = &x;
  if (x.arrived != x.mask) {
    self.state = State::waits;
    suspend_current();
  } else {
    if (of_all != nullptr) x.result = of_all(x.values, mask);
    for (unsigned l = 0; l < lanes; ++l) {
      if ((mask >> l & 1U) != 0) make_ready(*threads_[size_t{warp} * kWarp + l]);
    }
  }
  return x;
}

void BlockRunner::leave(Exchange& x) {
  current_->exchange = nullptr;
  if (--x.readers == 0) x.arrived = 0;
}

uint64_t BlockRunner::exchange(unsigned mask, uint64_t value, const Site& site, unsigned from) {
  Exchange& x = meet(mask, value, site, nullptr);
  const uint64_t out = x.values[from % kWarp];
  leave(x);
  return out;
}

uint64_t BlockRunner::combine(unsigned mask, uint64_t value, const Site& site, Combine of_all) {
  Exchange& x = meet(mask, value, site, of_all);
  const uint64_t out = x.result;
  leave(x);
  return out;
}

void BlockRunner::give_way(const Site& site) {
  current_->site = site;
  if (++spins_ > kMostSpins) fail(Outcome::Kind::divergent, text_of(site) + ": waits for what nobody does");
  suspend_current();
}

void BlockRunner::check_access(const void* address, size_t bytes, size_t alignment, bool writes) {
  if ((reinterpret_cast<uintptr_t>(address) & (alignment - 1)) != 0) {  // a power of two
    fail(Outcome::Kind::misaligned, std::string(writes ? "writes " : "reads ") + std::to_string(bytes) +
                                        " bytes at an address that is no multiple of " + std::to_string(alignment));
  }
  if (options_->reaches && !options_->reaches(address, bytes, writes)) {
    fail(Outcome::Kind::illegal_address,
         std::string(writes ? "writes " : "reads ") + std::to_string(bytes) + " bytes where the device may not");
  }
}

Outcome BlockRunner::stuck() const {
  const Thread* waiting = nullptr;
  const Thread* gone = nullptr;
  const Thread* elsewhere = nullptr;
  size_t waiters = 0;
  for (size_t i = 0; i < n_threads_; ++i) {
    const Thread& thread = *threads_[i];
    if (thread.state == State::ended) {
      if (gone == nullptr) gone = &thread;
      continue;
    }
    ++waiters;
    if (waiting == nullptr) waiting = &thread;
    if (elsewhere == nullptr && !same(thread.site, waiting->site)) elsewhere = &thread;
  }
  std::string text =
      std::to_string(waiters) + " threads wait for ever: " + name_of(*waiting) + " at " + text_of(waiting->site);
  if (elsewhere != nullptr) text += "; " + name_of(*elsewhere) + " at " + text_of(elsewhere->site);
  if (gone != nullptr) text += "; " + name_of(*gone) + " has ended";
  return {Outcome::Kind::divergent, std::move(text)};
}

namespace {

// Runners that no grid uses. Their stacks take a millisecond to allocate, and launching threads are short-lived.
class Idle {
 public:
  std::unique_ptr<BlockRunner> take() {
    const std::lock_guard lock(mutex_);
    if (runners_.empty()) return std::make_unique<BlockRunner>();
    auto runner = std::move(runners_.back());
    runners_.pop_back();
    return runner;
  }
  void give(std::unique_ptr<BlockRunner> runner) {
    const std::lock_guard lock(mutex_);
    runners_.push_back(std::move(runner));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BlockRunner>> runners_;
};
// Never destroyed: a device that was given up may still launch when the process ends.
Idle& idle() {
  static auto& all = *new Idle;
  return all;
}

}  // namespace

Outcome run_grid(const LaunchShape& shape, const Options& options, const std::function<void()>& body) {
  const size_t blocks = volume(shape.grid);
  const size_t threads = volume(shape.block);
  if (blocks == 0 || threads == 0 || threads > 1024) {
    return {Outcome::Kind::invalid_launch,
            std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads"};
  }
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Outcome first;
  const auto work = [&] {
    auto runner = idle().take();
    for (size_t i = next.fetch_add(1); i < blocks; i = next.fetch_add(1)) {
      const Dim& g = shape.grid;
      const auto at = static_cast<unsigned>(i);
      Outcome outcome = runner->run(shape, options, {at % g.x, at / g.x % g.y, at / g.x / g.y}, body);
      if (outcome.ok()) continue;
      next.store(blocks);
      const std::lock_guard lock(mutex);
      if (first.ok()) first = std::move(outcome);
    }
    idle().give(std::move(runner));
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min<size_t>(options.os_threads, blocks); ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return first;
}

}  // namespace kvbm::emulation
