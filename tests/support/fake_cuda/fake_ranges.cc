// Memory of the fake driver: its address, and the devices that may reach it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "support/fake_cuda/fake_state.h"

namespace kvbm::test {

using namespace kvbm::device;

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMarked = 1 << 20;  // at each end of an allocation

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

// Memory of a device begins with arbitrary bytes.
void mark(uintptr_t start, size_t bytes) {
  const size_t head = std::min(bytes, kMarked);
  std::memset(at(start), 0xA5, head);
  const size_t tail = std::min(bytes - head, kMarked);
  std::memset(at(start + bytes - tail), 0xA5, tail);
}

}  // namespace

uintptr_t FakeCuda::State::map_guarded(size_t bytes) {
  const size_t whole = whole_pages(bytes) + 2 * kPage;
  void* const base = ::mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return 0;
  mappings_[reinterpret_cast<uintptr_t>(base)] = whole;
  return reinterpret_cast<uintptr_t>(base) + kPage;
}

void FakeCuda::State::unmap_all() {
  for (const auto& [start, range] : ranges) {
    if (range.fd >= 0) ::close(range.fd);
  }
  for (const auto& [handle, event] : events) {
    if (event.fd >= 0) ::close(event.fd);
  }
  for (const auto& [start, bytes] : mappings_) ::munmap(at(start), bytes);
}

CuResult FakeCuda::State::allocate(FakeContext& context, size_t bytes, size_t pieces, FakeRange::Kind kind, bool engine,
                                   uintptr_t* start) {
  if (bytes == 0 || pieces == 0) return kCuInvalidValue;
  const uint64_t limit = options.devices[static_cast<size_t>(context.ordinal)].memory_bytes;
  if (bytes > limit || used(context.ordinal) + bytes * pieces > limit) return kCuOutOfMemory;
  const size_t step = whole_pages(bytes);
  const uintptr_t base = map_guarded(step * pieces);
  if (base == 0) return kCuOutOfMemory;
  for (size_t i = 0; i < pieces; ++i) {
    FakeRange range;
    range.start = base + i * step;
    range.bytes = bytes;
    range.kind = kind;
    range.ordinal = context.ordinal;
    range.context = context.handle;
    range.engine = engine;
    range.reserved_start = base;
    range.reserved_bytes = step * (pieces - 1) + bytes;
    range.fd = ::memfd_create("kvbm fake device memory", MFD_CLOEXEC);
    if (range.fd < 0 || ::ftruncate(range.fd, static_cast<off_t>(step)) != 0 ||
        ::mmap(at(range.start), step, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, range.fd, 0) == MAP_FAILED) {
      if (range.fd >= 0) ::close(range.fd);
      return kCuOutOfMemory;
    }
    mark(range.start, bytes);
    add_range(range);
  }
  *start = base;
  return kCuSuccess;
}

CuResult FakeCuda::State::map_foreign(FakeContext& context, int fd, size_t bytes, uintptr_t* start) {
  FakeRange range;
  range.start = map_guarded(bytes);
  if (range.start == 0 || ::mmap(at(range.start), whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                                 fd, 0) == MAP_FAILED) {
    return kCuOutOfMemory;
  }
  range.bytes = bytes;
  range.ordinal = context.ordinal;
  range.context = context.handle;
  range.foreign = true;
  range.fd = fd;
  add_range(range);
  *start = range.start;
  return kCuSuccess;
}

CuResult FakeCuda::State::allocate_host(FakeContext& context, size_t bytes, uintptr_t* start) {
  if (bytes == 0) return kCuInvalidValue;
  FakeRange range;
  range.start = map_guarded(bytes);
  if (range.start == 0 || ::mprotect(at(range.start), whole_pages(bytes), PROT_READ | PROT_WRITE) != 0) {
    return kCuOutOfMemory;
  }
  range.bytes = bytes;
  range.kind = FakeRange::Kind::pinned;
  range.ordinal = context.ordinal;
  range.context = context.handle;
  mark(range.start, bytes);
  add_range(range);
  *start = range.start;
  return kCuSuccess;
}

void FakeCuda::State::add_range(FakeRange range) {
  if (range.reserved_bytes == 0) {
    range.reserved_start = range.start;
    range.reserved_bytes = range.bytes;
  }
  ranges[range.start] = range;
  ranges_version.fetch_add(1, std::memory_order_release);
}

// Registered memory belongs to the host and stays. All other memory is gone permanently, also its address.
void FakeCuda::State::free_range(FakeRange& range) {
  ranges_version.fetch_add(1, std::memory_order_release);
  if (range.kind == FakeRange::Kind::freed) return;
  if (range.kind == FakeRange::Kind::registered) {
    ranges.erase(range.start);
    return;
  }
  ::mmap(at(range.start), whole_pages(range.bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
  if (range.fd >= 0) ::close(range.fd);
  range.fd = -1;
  range.kind = FakeRange::Kind::freed;
}

FakeRange* FakeCuda::State::find_range(uintptr_t address) {
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return nullptr;
  FakeRange& range = std::prev(next)->second;
  return address - range.start < range.bytes ? &range : nullptr;
}

Reach FakeCuda::State::reach(int ordinal, uintptr_t address, size_t bytes, bool writes, bool kernel) {
  if (bytes == 0) return Reach::inside;
  if (address + bytes < address) return Reach::outside;
  const uintptr_t end = address + bytes;
  if (find_range(address) == nullptr) {
    // The host's own memory: a copy may take it, a kernel may not.
    const auto known = ranges.lower_bound(address);
    const auto mapping = mappings_.upper_bound(address);
    const bool guard = mapping != mappings_.begin() && address - std::prev(mapping)->first < std::prev(mapping)->second;
    const bool runs_into = known != ranges.end() && known->first < end;
    return kernel || guard || runs_into ? Reach::outside : Reach::pageable;
  }
  while (address < end) {
    const FakeRange* range = find_range(address);
    if (range == nullptr || range->kind == FakeRange::Kind::freed) return Reach::outside;
    const bool on_device = range->kind == FakeRange::Kind::device;
    const bool on_host = range->kind == FakeRange::Kind::pinned || range->kind == FakeRange::Kind::registered;
    if (kernel && on_device && range->ordinal != ordinal) return Reach::outside;  // no access between devices
    if (kernel && on_host && !options.devices[static_cast<size_t>(ordinal)].maps_host) return Reach::outside;
    if (writes && range->read_only) return Reach::outside;
    address = range->start + range->bytes;
  }
  return Reach::inside;
}

uint64_t FakeCuda::State::used(int ordinal) const {
  uint64_t bytes = 0;
  for (const auto& [start, range] : ranges) {
    const bool counts = range.kind == FakeRange::Kind::device || range.kind == FakeRange::Kind::managed;
    if (counts && range.ordinal == ordinal && !range.foreign) bytes += range.bytes;
  }
  return bytes;
}

}  // namespace kvbm::test
