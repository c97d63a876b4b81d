#include "benchmark/free_driver.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kvbm::benchmark {

namespace {

using namespace device;

std::atomic<uint64_t> calls{0};
std::atomic<uint64_t> owned_base{0}, owned_bytes{0};

CuResult counted() {
  calls.fetch_add(1, std::memory_order_relaxed);
  return kCuSuccess;
}

// Returns a handle of any kind. No code reads through it.
template <class Handle>
Handle some_handle() {
  static char one;
  return reinterpret_cast<Handle>(&one);
}

CuResult attribute(int* value, int which, CuDevice) {
  switch (which) {
    case kCuMultiprocessors:
      *value = 132;
      break;
    case kCuMajor:
      *value = 9;
      break;
    case kCuAsyncEngines:
      *value = 3;
      break;
    case kCuCanMapHostMemory:
    case kCuUnifiedAddressing:
    case kCuStreamMemory64:
    case kCuHostPointerForRegistered:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return kCuSuccess;
}

CuResult pointer_attribute(void* value, int which, CuPointer pointer) {
  const uint64_t base = owned_base.load(), bytes = owned_bytes.load();
  if (pointer < base || pointer >= base + bytes) return kCuInvalidValue;
  uint64_t said = 0;
  switch (which) {
    case kCuPointerContext:
      said = reinterpret_cast<uintptr_t>(some_handle<CuContext>());
      break;
    case kCuPointerMemoryType:
      said = kCuMemoryDevice;
      break;
    case kCuPointerDevicePointer:
      said = pointer;
      break;
    case kCuPointerRangeStart:
    case kCuPointerMappingStart:
      said = base;
      break;
    case kCuPointerRangeSize:
    case kCuPointerMappingSize:
      said = bytes;
      break;
    default:
      break;
  }
  // Ordinals and types have four bytes, whatever the size of the caller's variable.
  const bool is_small =
      which == kCuPointerMemoryType || which == kCuPointerDeviceOrdinal || which == kCuPointerIsManaged;
  std::memcpy(value, &said, is_small ? sizeof(uint32_t) : sizeof said);
  return kCuSuccess;
}

CuResult allocate(CuPointer* out, size_t bytes) {
  // Only lanes name this memory, and they do not read it, so addresses are enough.
  static std::atomic<CuPointer> next{CuPointer{1} << 56};
  *out = next.fetch_add((bytes + 4095) / 4096 * 4096);
  return kCuSuccess;
}

void fill_in(Driver& d) {
  d.cuInit = [](unsigned) { return kCuSuccess; };
  d.cuDriverGetVersion = [](int* version) { return *version = 13000, kCuSuccess; };
  d.cuGetErrorName = [](CuResult, const char** name) { return *name = "CUDA_ERROR", kCuSuccess; };
  d.cuGetErrorString = d.cuGetErrorName;
  d.cuDeviceGetCount = [](int* count) { return *count = 1, kCuSuccess; };
  d.cuDeviceGet = [](CuDevice* device, int) { return *device = 0, kCuSuccess; };
  d.cuDeviceGetName = [](char* name, int size, CuDevice) {
    return (void)std::snprintf(name, static_cast<size_t>(size), "free"), kCuSuccess;
  };
  d.cuDeviceGetUuid = [](CuUuid* uuid, CuDevice) { return *uuid = {}, kCuSuccess; };
  d.cuDeviceGetPCIBusId = [](char* text, int size, CuDevice) {
    return (void)std::snprintf(text, static_cast<size_t>(size), "ffff:00:00.0"), kCuSuccess;
  };
  d.cuDeviceGetAttribute = attribute;
  d.cuDeviceTotalMem = [](size_t* bytes, CuDevice) { return *bytes = size_t{80} << 30, kCuSuccess; };
  d.cuDevicePrimaryCtxRetain = [](CuContext* context, CuDevice) {
    return *context = some_handle<CuContext>(), kCuSuccess;
  };
  d.cuDevicePrimaryCtxRelease = [](CuDevice) { return kCuSuccess; };
  d.cuCtxPushCurrent = [](CuContext) { return kCuSuccess; };
  d.cuCtxPopCurrent = [](CuContext* context) { return *context = some_handle<CuContext>(), kCuSuccess; };
  d.cuCtxGetDevice = [](CuDevice* device) { return *device = 0, kCuSuccess; };
  d.cuCtxGetStreamPriorityRange = [](int* least, int* greatest) { return *least = 0, *greatest = -5, kCuSuccess; };
  d.cuModuleLoadData = [](CuModule* module, const void*) { return *module = some_handle<CuModule>(), kCuSuccess; };
  d.cuModuleUnload = [](CuModule) { return kCuSuccess; };
  d.cuModuleGetFunction = [](CuFunction* f, CuModule, const char*) {
    return *f = some_handle<CuFunction>(), kCuSuccess;
  };
  d.cuFuncLoad = [](CuFunction) { return kCuSuccess; };
  d.cuLaunchKernel = [](CuFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CuStream,
                        void**, void**) { return counted(); };
  d.cuMemAlloc = allocate;
  d.cuMemFree = [](CuPointer) { return kCuSuccess; };
  d.cuMemHostAlloc = [](void** out, size_t bytes, unsigned) {
    *out = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *out == nullptr ? kCuOutOfMemory : kCuSuccess;
  };
  d.cuMemFreeHost = [](void* memory) { return std::free(memory), kCuSuccess; };
  d.cuMemHostRegister = [](void* memory, size_t bytes, unsigned) { return std::memset(memory, 1, bytes), kCuSuccess; };
  d.cuMemHostUnregister = [](void*) { return kCuSuccess; };
  d.cuMemHostGetDevicePointer = [](CuPointer* out, void* memory, unsigned) {
    return *out = address_of(memory), kCuSuccess;
  };
  d.cuPointerGetAttribute = pointer_attribute;
  d.cuPointerSetAttribute = [](const void*, int, CuPointer) { return kCuSuccess; };
  d.cuFlushGPUDirectRDMAWrites = [](int, int) { return counted(); };
  d.cuMemcpyAsync = [](CuPointer, CuPointer, size_t, CuStream) { return counted(); };
  d.cuMemsetD8Async = [](CuPointer, unsigned char, size_t, CuStream) { return counted(); };
  d.cuStreamCreateWithPriority = [](CuStream* s, unsigned, int) { return *s = some_handle<CuStream>(), kCuSuccess; };
  d.cuStreamDestroy = [](CuStream) { return kCuSuccess; };
  d.cuStreamGetCtx = [](CuStream, CuContext* context) { return *context = some_handle<CuContext>(), kCuSuccess; };
  d.cuStreamIsCapturing = [](CuStream, int* status) { return *status = 0, kCuSuccess; };
  d.cuThreadExchangeStreamCaptureMode = [](int*) { return kCuSuccess; };
  d.cuStreamSynchronize = [](CuStream) { return counted(); };
  d.cuStreamWaitEvent = [](CuStream, CuEvent, unsigned) { return counted(); };
  d.cuStreamWaitValue64 = [](CuStream, CuPointer, uint64_t, unsigned) { return counted(); };
  d.cuStreamWriteValue64 = [](CuStream, CuPointer at, uint64_t value, unsigned) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
    return counted();
  };
  d.cuEventCreate = [](CuEvent* e, unsigned) { return *e = some_handle<CuEvent>(), kCuSuccess; };
  d.cuEventDestroy = [](CuEvent) { return kCuSuccess; };
  d.cuEventRecord = [](CuEvent, CuStream) { return counted(); };
  d.cuEventQuery = [](CuEvent) { return counted(); };
  d.cuEventSynchronize = [](CuEvent) { return counted(); };
  d.cuEventElapsedTime = [](float* ms, CuEvent, CuEvent) { return *ms = 0, counted(); };
  d.cuIpcGetMemHandle = [](CuIpcHandle*, CuPointer) { return kCuNotSupported; };
  d.cuIpcOpenMemHandle = [](CuPointer*, CuIpcHandle, unsigned) { return kCuNotSupported; };
  d.cuIpcCloseMemHandle = [](CuPointer) { return kCuNotSupported; };
  d.cuIpcGetEventHandle = [](CuIpcHandle*, CuEvent) { return kCuNotSupported; };
  d.cuIpcOpenEventHandle = [](CuEvent*, CuIpcHandle) { return kCuNotSupported; };
  d.own_kernels = "none";
}

}  // namespace

const device::Driver& free_driver() noexcept {
  static const Driver table = [] {
    Driver made;
    fill_in(made);
    return made;
  }();
  return table;
}

uint64_t free_driver_calls() noexcept { return calls.load(std::memory_order_relaxed); }

void free_driver_owns(const void* base, uint64_t bytes) noexcept {
  owned_base = reinterpret_cast<uintptr_t>(base);
  owned_bytes = bytes;
}

}  // namespace kvbm::benchmark
