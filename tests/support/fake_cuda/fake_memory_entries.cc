// Memory of the fake driver: allocations, registrations, attributes, copies.
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "support/fake_cuda/fake_state.h"

namespace kvbm::test {

using namespace kvbm::device;

namespace {

using State = FakeCuda::State;
using Lock = std::unique_lock<std::mutex>;
using Kind = FakeRange::Kind;

uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

CuResult allocate(CuPointer* pointer, size_t bytes) {
  return fake_entry("cuMemAlloc", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
    uintptr_t start = 0;
    const CuResult result = state.allocate(*context, bytes, 1, Kind::device, false, &start);
    if (result == kCuSuccess) *pointer = start;
    return result;
  });
}

CuResult free_memory(CuPointer pointer) {
  return fake_entry("cuMemFree", Need::context, [&](State& state, FakeContext*, Lock& lock) -> CuResult {
    if (pointer == 0) return kCuSuccess;
    state.wait_until_idle(lock);
    FakeRange* range = state.find_range(static_cast<uintptr_t>(pointer));
    if (range == nullptr || range->start != pointer || range->foreign) return kCuInvalidValue;
    if (range->kind != Kind::device && range->kind != Kind::managed) return kCuInvalidValue;
    state.free_range(*range);
    return kCuSuccess;
  });
}

CuResult allocate_host(void** pointer, size_t bytes, unsigned flags) {
  return fake_entry("cuMemHostAlloc", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
    if ((flags & ~7U) != 0) return kCuInvalidValue;
    uintptr_t start = 0;
    const CuResult result = state.allocate_host(*context, bytes, &start);
    if (result == kCuSuccess) *pointer = reinterpret_cast<void*>(start);
    return result;
  });
}

CuResult free_host(void* pointer) {
  return fake_entry("cuMemFreeHost", Need::context, [&](State& state, FakeContext*, Lock& lock) -> CuResult {
    state.wait_until_idle(lock);
    FakeRange* range = state.find_range(address_of(pointer));
    if (range == nullptr || range->start != address_of(pointer) || range->kind != Kind::pinned) return kCuInvalidValue;
    state.free_range(*range);
    return kCuSuccess;
  });
}

// Returns whether this process may read, and if `writes` also write, all of [start, start + bytes), by the kernel's
// maps.
bool is_mapped(uintptr_t start, size_t bytes, bool writes) {
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  char line[1024];
  uintptr_t next = start;
  while (next < start + bytes && std::fgets(line, sizeof line, maps) != nullptr) {
    uintptr_t from = 0, to = 0;
    char rights[5] = "";
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &to, rights) != 3) continue;
    if (to <= next) continue;
    if (from > next || rights[0] != 'r' || (writes && rights[1] != 'w')) break;
    next = to;
  }
  std::fclose(maps);
  return next >= start + bytes;
}

CuResult register_host(void* pointer, size_t bytes, unsigned flags) {
  return fake_entry("cuMemHostRegister", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
    const FakeDevice& device = state.options.devices[static_cast<size_t>(context->ordinal)];
    const bool read_only = (flags & kCuHostRegisterReadOnly) != 0;
    const uintptr_t start = address_of(pointer);
    if (start == 0 || bytes == 0 || (flags & ~15U) != 0 || start + bytes < start) return kCuInvalidValue;
    if (read_only && !device.registers_read_only) return kCuNotSupported;
    const auto next = state.ranges.lower_bound(start);
    if (state.find_range(start) != nullptr || (next != state.ranges.end() && next->first < start + bytes)) {
      return kCuAlreadyRegistered;
    }
    if (!is_mapped(start, bytes, !read_only)) return kCuInvalidValue;
    FakeRange range;
    range.start = start;
    range.bytes = bytes;
    range.kind = Kind::registered;
    range.ordinal = context->ordinal;
    range.context = context->handle;
    range.read_only = read_only;
    state.add_range(range);
    return kCuSuccess;
  });
}

CuResult unregister_host(void* pointer) {
  return fake_entry("cuMemHostUnregister", Need::context, [&](State& state, FakeContext*, Lock& lock) -> CuResult {
    state.wait_until_idle(lock);
    FakeRange* range = state.find_range(address_of(pointer));
    if (range == nullptr || range->kind != Kind::registered || range->start != address_of(pointer)) {
      return kCuNotRegistered;
    }
    state.free_range(*range);
    return kCuSuccess;
  });
}

CuResult host_device_pointer(CuPointer* device, void* host, unsigned flags) {
  return fake_entry(
      "cuMemHostGetDevicePointer", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
        const FakeRange* range = state.find_range(address_of(host));
        const bool known = range != nullptr && (range->kind == Kind::pinned || range->kind == Kind::registered);
        if (flags != 0 || !known) return kCuInvalidValue;
        if (!state.options.devices[static_cast<size_t>(context->ordinal)].maps_host) return kCuInvalidValue;
        *device = address_of(host);
        return kCuSuccess;
      });
}

CuResult pointer_attribute(void* value, int attribute, CuPointer pointer) {
  return fake_entry("cuPointerGetAttribute", Need::initialized, [&](State& state, FakeContext*, Lock&) -> CuResult {
    const FakeRange* range = state.find_range(static_cast<uintptr_t>(pointer));
    if (range == nullptr || range->kind == Kind::freed) return kCuInvalidValue;
    const bool host = range->kind == Kind::pinned || range->kind == Kind::registered;
    const unsigned type = host ? kCuMemoryHost : kCuMemoryDevice;
    const bool managed = range->kind == Kind::managed;
    const CuPointer start = range->reserved_start, piece = range->start;
    switch (attribute) {
      case kCuPointerContext:
        std::memcpy(value, &range->context, sizeof range->context);
        return kCuSuccess;
      case kCuPointerMemoryType:
        std::memcpy(value, &type, sizeof type);
        return kCuSuccess;
      case kCuPointerDevicePointer:
        std::memcpy(value, &pointer, sizeof pointer);
        return kCuSuccess;
      case kCuPointerIsManaged:
        std::memcpy(value, &managed, sizeof managed);
        return kCuSuccess;
      case kCuPointerDeviceOrdinal:
        std::memcpy(value, &range->ordinal, sizeof range->ordinal);
        return kCuSuccess;
      case kCuPointerRangeStart:
        std::memcpy(value, &start, sizeof start);
        return kCuSuccess;
      case kCuPointerRangeSize:
        std::memcpy(value, &range->reserved_bytes, sizeof(size_t));
        return kCuSuccess;
      case kCuPointerMappingStart:
        std::memcpy(value, &piece, sizeof piece);
        return kCuSuccess;
      case kCuPointerMappingSize:
        std::memcpy(value, &range->bytes, sizeof range->bytes);
        return kCuSuccess;
      default:
        return kCuInvalidValue;
    }
  });
}

CuResult set_pointer_attribute(const void* value, int attribute, CuPointer pointer) {
  return fake_entry("cuPointerSetAttribute", Need::context, [&](State& state, FakeContext*, Lock&) -> CuResult {
    const FakeRange* range = state.find_range(static_cast<uintptr_t>(pointer));
    if (range == nullptr || range->kind != Kind::device || value == nullptr) return kCuInvalidValue;
    return attribute == kCuPointerSyncMemops ? kCuSuccess : kCuInvalidValue;
  });
}

// Only this process writes, and its writes are visible at once.
CuResult flush_direct(int target, int scope) {
  return fake_entry("cuFlushGPUDirectRDMAWrites", Need::context,
                    [&](State& state, FakeContext* context, Lock&) -> CuResult {
                      if (target != kCuFlushCurrent || scope != kCuFlushToOwner) return kCuInvalidValue;
                      const FakeDevice& what = state.options.devices[static_cast<size_t>(context->ordinal)];
                      return (what.direct_flushes & kCuFlushByHost) != 0 ? kCuSuccess : kCuNotSupported;
                    });
}

bool may_touch(State& state, int ordinal, CuPointer pointer, size_t bytes, bool writes) {
  return state.reach(ordinal, static_cast<uintptr_t>(pointer), bytes, writes, false) != Reach::outside;
}

// Returns true for host memory that is registered in part, or in two ranges: the driver accepts one range only, even if
// the next one begins at its end.
bool crosses_registrations(State& state, CuPointer pointer, size_t bytes) {
  const auto start = static_cast<uintptr_t>(pointer);
  const FakeRange* range = state.find_range(start);
  if (range != nullptr) return range->kind == Kind::registered && start + bytes > range->start + range->bytes;
  const auto next = state.ranges.lower_bound(start);
  return next != state.ranges.end() && next->second.kind == Kind::registered && next->first < start + bytes;
}

CuResult copy(CuPointer to, CuPointer from, size_t bytes, CuStream handle) {
  return fake_entry("cuMemcpyAsync", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
    FakeStream* stream = state.find_stream(handle, context);
    if (stream == nullptr) return kCuInvalidHandle;
    if (CuResult result = state.usable(stream->context); result != kCuSuccess) return result;
    if (bytes != 0 && (to == 0 || from == 0)) return kCuInvalidValue;
    if (crosses_registrations(state, to, bytes) || crosses_registrations(state, from, bytes)) return kCuInvalidValue;
    const int ordinal = stream->ordinal;
    state.push(*stream, FakeWork{{},
                                 false,
                                 [&state, ordinal, to, from, bytes]() -> CuResult {
                                   {
                                     const std::lock_guard<std::mutex> inner(state.mutex);
                                     if (!may_touch(state, ordinal, to, bytes, true) ||
                                         !may_touch(state, ordinal, from, bytes, false)) {
                                       return kCuIllegalAddress;
                                     }
                                     state.copied += bytes;
                                   }
                                   std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
                                   return kCuSuccess;
                                 },
                                 {}});
    return kCuSuccess;
  });
}

CuResult set_bytes(CuPointer to, unsigned char value, size_t bytes, CuStream handle) {
  return fake_entry("cuMemsetD8Async", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
    FakeStream* stream = state.find_stream(handle, context);
    if (stream == nullptr) return kCuInvalidHandle;
    if (CuResult result = state.usable(stream->context); result != kCuSuccess) return result;
    const int ordinal = stream->ordinal;
    state.push(*stream,
               FakeWork{{},
                        false,
                        [&state, ordinal, to, value, bytes]() -> CuResult {
                          {
                            const std::lock_guard<std::mutex> inner(state.mutex);
                            if (state.reach(ordinal, static_cast<uintptr_t>(to), bytes, true, true) != Reach::inside) {
                              return kCuIllegalAddress;
                            }
                          }
                          std::memset(reinterpret_cast<void*>(to), value, bytes);
                          return kCuSuccess;
                        },
                        {}});
    return kCuSuccess;
  });
}

}  // namespace

void add_fake_memory_entries(Driver& driver) {
  driver.cuMemAlloc = allocate;
  driver.cuMemFree = free_memory;
  driver.cuMemHostAlloc = allocate_host;
  driver.cuMemFreeHost = free_host;
  driver.cuMemHostRegister = register_host;
  driver.cuMemHostUnregister = unregister_host;
  driver.cuMemHostGetDevicePointer = host_device_pointer;
  driver.cuPointerGetAttribute = pointer_attribute;
  driver.cuPointerSetAttribute = set_pointer_attribute;
  driver.cuFlushGPUDirectRDMAWrites = flush_direct;
  driver.cuMemcpyAsync = copy;
  driver.cuMemsetD8Async = set_bytes;
}

}  // namespace kvbm::test
