#include "device/pinned_host.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/thread_executor.h"
#include "device/device_memory.h"

// Linux 5.14; the C library of Debian 12 has them, that of Ubuntu 22.04 as well.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace kvbm::device {

namespace {

constexpr char kWhat[] = "host memory is not registered with the device";
constexpr uint64_t kPage = 4096;
constexpr uint64_t kShare = 64ULL << 20;  // less is not worth a thread

// What one thread brings in.
struct Share {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  bool writes = false;
  int error = 0;  // of errno
};

void bring_in(Share& share) {
  if (::madvise(share.data, share.bytes, share.writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) return;
  if (errno != EINVAL) {
    share.error = errno;
    return;
  }
  // An older kernel: the registration brings in what a look at each page does not.
  for (uint64_t at = 0; at < share.bytes; at += kPage) (void)*static_cast<const volatile std::byte*>(share.data + at);
}

void* bring_in_entry(void* share) {
  bring_in(*static_cast<Share*>(share));
  return nullptr;
}

// Threads that the system refuses are done without.
Status bring_in_all(MutableBytes memory, bool writes, uint32_t threads) {
  const uint64_t most = std::max<uint64_t>(1, memory.size() / kShare);
  const auto n = static_cast<size_t>(std::clamp<uint64_t>(threads, 1, most));
  const uint64_t step = round_up((memory.size() + n - 1) / n, kPage);
  std::vector<Share> shares;
  for (uint64_t at = 0; at < memory.size(); at += step) {
    shares.push_back({memory.data() + at, std::min(step, memory.size() - at), writes, 0});
  }
  std::vector<pthread_t> running;
  running.reserve(shares.size());
  for (size_t i = 1; i < shares.size(); ++i) {
    pthread_t thread;
    if (start_thread(thread, "kvbm-pin-" + std::to_string(i), &bring_in_entry, &shares[i]).ok()) {
      running.push_back(thread);
    } else {
      bring_in(shares[i]);
    }
  }
  if (!shares.empty()) bring_in(shares[0]);
  for (pthread_t thread : running) ::pthread_join(thread, nullptr);
  for (const Share& share : shares) {
    if (share.error != 0) {
      return {share.error == ENOMEM || share.error == EHWPOISON ? Code::no_memory : Code::invalid_argument, kWhat,
              std::strerror(share.error)};
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<PinnedHost>> PinnedHost::pin(std::shared_ptr<Device> device, MutableBytes memory, bool read_only,
                                                    uint32_t threads) {
  if (memory.empty() || reinterpret_cast<uintptr_t>(memory.data()) % kPage != 0) {
    return Status{Code::invalid_argument, kWhat, "it is empty or does not begin at a page"};
  }
  if (read_only && !device->facts().registers_read_only) {
    return Status{Code::unsupported, kWhat, "the device does not register memory that this process may only read"};
  }
  if (Status s = bring_in_all(memory, !read_only, threads); !s.ok()) return s;
  std::unique_ptr<PinnedHost> host(new PinnedHost(device, memory));
  const Device::Scope scope(*device);
  if (!scope.entered()) return Status{Code::tier_disabled, kWhat, "the device is lost"};
  if (Status s = host->register_all(read_only); !s.ok()) return s;
  const CuResult result = device->driver().cuMemHostGetDevicePointer(&host->address_, memory.data(), 0);
  if (Status s = device->check(result, "cuMemHostGetDevicePointer"); !s.ok()) return s;
  return host;
}

Status PinnedHost::register_all(bool read_only) {
  const unsigned flags = kCuHostPortable | kCuHostDeviceMap | (read_only ? kCuHostRegisterReadOnly : 0);
  const CuResult result = device_->driver().cuMemHostRegister(memory_.data(), memory_.size(), flags);
  if (result == kCuAlreadyRegistered) return take_existing();
  if (Status s = device_->check(result, "cuMemHostRegister"); !s.ok()) return s;
  owned_ = true;
  return {};
}

// The engine may have registered a buffer that it gave to kvbm; then all of it is there in one range.
Status PinnedHost::take_existing() {
  const PointerFacts facts = pointer_facts(device_->driver(), memory_.data());
  const CuPointer start = reinterpret_cast<uintptr_t>(memory_.data());
  if (facts.kind == PointerKind::pinned && facts.start <= start &&
      facts.bytes - (start - facts.start) >= memory_.size()) {
    return {};
  }
  return {Code::in_use, kWhat, "somebody else in this process registered a part of it"};
}

PinnedHost::~PinnedHost() {
  if (!owned_) return;
  const Device::Scope scope(*device_);
  if (!scope.entered()) return;
  (void)device_->check(device_->driver().cuMemHostUnregister(memory_.data()), "cuMemHostUnregister");
}

CuPointer PinnedHost::device_pointer(const void* host, uint64_t bytes) const noexcept {
  const auto start = reinterpret_cast<uintptr_t>(memory_.data());
  const auto at = reinterpret_cast<uintptr_t>(host);
  if (at < start || at - start > memory_.size() || bytes > memory_.size() - (at - start)) return 0;
  return address_ + (at - start);
}

}  // namespace kvbm::device
