#include "device/memory/pinned_host.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/thread/memory_wait.h"
#include "base/thread/thread_executor.h"
#include "device/memory/device_memory.h"

// Since Linux 5.14; the C libraries of Debian 12 and Ubuntu 22.04 define it.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace kvbm::device {

namespace {

constexpr char kNotRegistered[] = "host memory is not registered with the device";
constexpr uint64_t kHostPage = 4096;
constexpr uint64_t kShare = 64ULL << 20;  // less is not worth a thread

}  // namespace

// Work of one thread at a time, of a stripe's size. Its result is reported when all threads are done.
struct PinnedHost::Share {
  MutableBytes memory;
  Stripe* stripe = nullptr;  // to register it as after populating it; null: populate only
  Device* device = nullptr;
  int error = 0;  // of errno
  bool device_lost = false;
  CuResult result = kCuSuccess;

  void bring_in() {
    if (::madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE) == 0) return;
    if (errno != EINVAL) {
      error = errno;
      return;
    }
    // An older kernel: touch each page; the registration populates the rest.
    for (uint64_t at = 0; at < memory.size(); at += kHostPage) {
      (void)*static_cast<const volatile std::byte*>(memory.data() + at);
    }
  }

  void enter() {
    const Device::Scope scope(*device);
    if (!scope.entered()) {
      device_lost = true;
      return;
    }
    result = device->driver().cuMemHostRegister(memory.data(), memory.size(), kCuHostPortable | kCuHostDeviceMap);
    stripe->owned = result == kCuSuccess;
  }

  // Returns whether the share failed. kCuAlreadyRegistered is no failure yet: check_existing() decides.
  [[nodiscard]] bool failed() const noexcept {
    return error != 0 || device_lost || (result != kCuSuccess && result != kCuAlreadyRegistered);
  }

  // Runs the shares on up to `threads` threads; if the system refuses a thread, on fewer. Threads take shares one after
  // the other, until one has failed. Shares after it stay untouched.
  static void run_all(std::span<Share> shares, size_t threads) {
    std::atomic<size_t> next{0};
    std::atomic<bool> ended{false};
    auto run = [&, call = DriverCall::current()] {
      const MemoryWait patient;
      const DriverCall::Helper helper(call);
      while (!ended.load(std::memory_order_relaxed)) {
        const size_t i = next.fetch_add(1, std::memory_order_relaxed);
        if (i >= shares.size()) return;
        Share& share = shares[i];
        share.bring_in();
        if (share.error == 0 && share.stripe != nullptr) share.enter();
        if (share.failed()) ended.store(true, std::memory_order_relaxed);
      }
    };
    const auto entry = [](void* argument) -> void* {
      (*static_cast<decltype(run)*>(argument))();
      return nullptr;
    };
    std::vector<pthread_t> running;
    running.reserve(threads);
    const MemoryWait patient;  // threads use this one's stack, so it must not fail now
    for (size_t i = 1; i < std::min(threads, shares.size()); ++i) {
      pthread_t thread;
      if (start_thread(thread, "kvbm-pin-" + std::to_string(i), entry, &run).ok()) running.push_back(thread);
    }
    run();
    for (pthread_t thread : running) ::pthread_join(thread, nullptr);
  }
};

// Cuts the memory into shares of whole units, or of whole pages if all of it becomes one stripe.
std::vector<PinnedHost::Share> PinnedHost::cut(uint32_t threads, uint64_t unit, uint64_t most_bytes) {
  const uint64_t all = memory_.size();
  const uint64_t most = std::clamp<uint64_t>(threads, 1, std::max<uint64_t>(1, all / kShare));
  const uint64_t grain = std::max(unit, kHostPage);
  const uint64_t even = ((all + most - 1) / most + grain - 1) / grain * grain;
  const uint64_t step = std::min(even, std::max(most_bytes / grain, uint64_t{1}) * grain);
  const size_t n = (all + step - 1) / step;
  step_ = unit != 0 ? step : all;
  stripes_.resize(unit != 0 ? n : 1);
  std::vector<Share> shares(n);
  for (size_t i = 0; i < n; ++i) {
    shares[i].memory = memory_.subspan(i * step, std::min(step, all - i * step));
    shares[i].device = device_.get();
    if (unit != 0) shares[i].stripe = &stripes_[i];
  }
  return shares;
}

Result<std::unique_ptr<PinnedHost>> PinnedHost::pin(std::shared_ptr<Device> device, MutableBytes memory,
                                                    uint32_t threads, uint64_t unit, uint64_t most_bytes) {
  if (memory.empty() || reinterpret_cast<uintptr_t>(memory.data()) % kHostPage != 0 || unit % kHostPage != 0) {
    return Status{Code::invalid_argument, kNotRegistered, "it is empty or does not begin at a page"};
  }
  std::unique_ptr<PinnedHost> host(new PinnedHost(device, memory));
  std::vector<Share> shares = host->cut(threads, unit, most_bytes);
  Share::run_all(shares, threads);
  const Device::Scope scope(*device);
  if (!scope.entered()) return device->lost();
  for (const Share& share : shares) {
    if (Status s = host->take(share); !s.ok()) return s;
  }
  if (unit == 0) {
    Share whole;
    whole.memory = memory;
    whole.stripe = host->stripes_.data();
    whole.device = device.get();
    whole.enter();
    if (Status s = host->take(whole); !s.ok()) return s;
  }
  for (size_t i = 0; i < host->stripes_.size(); ++i) {
    const CuResult result =
        device->driver().cuMemHostGetDevicePointer(&host->stripes_[i].address, host->stripe(i).data(), 0);
    if (Status s = device->check(result, "cuMemHostGetDevicePointer"); !s.ok()) return s;
  }
  return host;
}

Status PinnedHost::take(const Share& share) {
  if (share.error != 0) {
    return {share.error == ENOMEM || share.error == EHWPOISON ? Code::no_memory : Code::invalid_argument,
            kNotRegistered, std::strerror(share.error)};
  }
  if (share.device_lost) return device_->lost();
  if (share.result == kCuAlreadyRegistered) return check_existing(share.memory);
  return device_->check(share.result, "cuMemHostRegister");
}

// Accepts a stripe that lies in one registered range: the engine may have registered a buffer that it gave to kvbm.
Status PinnedHost::check_existing(MutableBytes stripe) const {
  const PointerFacts facts = pointer_facts(device_->driver(), stripe.data());
  const CuPointer start = reinterpret_cast<uintptr_t>(stripe.data());
  if (facts.kind == PointerKind::pinned && facts.start <= start &&
      facts.bytes - (start - facts.start) >= stripe.size()) {
    return {};
  }
  return {Code::in_use, kNotRegistered, "other code in this process registered a part of it"};
}

PinnedHost::~PinnedHost() {
  const Device::Scope scope(*device_);
  if (!scope.entered()) return;
  for (size_t i = 0; i < stripes_.size(); ++i) {
    if (!stripes_[i].owned) continue;
    device_->note(device_->driver().cuMemHostUnregister(stripe(i).data()), "cuMemHostUnregister");
  }
}

bool PinnedHost::owns_registration() const noexcept {
  return std::all_of(stripes_.begin(), stripes_.end(), [](const Stripe& stripe) { return stripe.owned; });
}

PinnedHost::Place PinnedHost::place(const void* host, uint64_t bytes) const noexcept {
  const auto start = reinterpret_cast<uintptr_t>(memory_.data());
  const auto at = reinterpret_cast<uintptr_t>(host);
  if (at < start || at - start >= memory_.size() || bytes > memory_.size() - (at - start)) return {};
  const size_t i = (at - start) / step_;
  const uint64_t into = (at - start) % step_;
  if (bytes > step_ - into) return {};
  return {stripes_[i].address + into, start + i * step_};
}

}  // namespace kvbm::device
