// The CUDA driver API, as far as kvbm uses it: its types, the values it gives meaning to, and a table of entry points.
//
// Declared here and not taken from cuda.h, so that kvbm builds without CUDA. Names, types and values are those of
// NVIDIA's driver API reference (CUDA 13.0); a test compares them with cuda.h if it is installed.
// The table is filled by device/driver/driver_library from libcuda, or by tests with a fake of it
// (tests/support/fake_cuda). Thread: any. An entry that an older driver lacks is null only if its comment says so.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvbm::device {

using CuResult = int;
using CuDevice = int;
using CuPointer = unsigned long long;  // CUdeviceptr
using CuContext = struct CUctx_st*;
using CuModule = struct CUmod_st*;
using CuFunction = struct CUfunc_st*;
using CuStream = struct CUstream_st*;
using CuEvent = struct CUevent_st*;

// The driver names memory by number.
inline CuPointer address_of(const void* memory) noexcept { return reinterpret_cast<uintptr_t>(memory); }

struct CuUuid {
  char bytes[16];
};
struct CuIpcHandle {  // CUipcMemHandle and CUipcEventHandle
  char reserved[64];
};

// CUresult, the values that kvbm distinguishes.
inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuInvalidValue = 1;
inline constexpr CuResult kCuOutOfMemory = 2;
inline constexpr CuResult kCuNotInitialized = 3;
inline constexpr CuResult kCuDeinitialized = 4;  // the process is ending
inline constexpr CuResult kCuNoDevice = 100;
inline constexpr CuResult kCuInvalidDevice = 101;
inline constexpr CuResult kCuInvalidImage = 200;
inline constexpr CuResult kCuInvalidContext = 201;
inline constexpr CuResult kCuNoBinaryForGpu = 209;
inline constexpr CuResult kCuUncorrectableEcc = 214;
inline constexpr CuResult kCuUncorrectableNvlink = 220;
inline constexpr CuResult kCuContained = 226;
inline constexpr CuResult kCuInvalidHandle = 400;
inline constexpr CuResult kCuNotFound = 500;
inline constexpr CuResult kCuNotReady = 600;
inline constexpr CuResult kCuIllegalAddress = 700;
inline constexpr CuResult kCuOutOfResources = 701;
inline constexpr CuResult kCuLaunchTimeout = 702;
inline constexpr CuResult kCuContextDestroyed = 709;
inline constexpr CuResult kCuAssert = 710;
inline constexpr CuResult kCuAlreadyRegistered = 712;
inline constexpr CuResult kCuNotRegistered = 713;
inline constexpr CuResult kCuHardwareStack = 714;
inline constexpr CuResult kCuIllegalInstruction = 715;
inline constexpr CuResult kCuMisalignedAddress = 716;
inline constexpr CuResult kCuInvalidAddressSpace = 717;
inline constexpr CuResult kCuInvalidPc = 718;
inline constexpr CuResult kCuLaunchFailed = 719;
inline constexpr CuResult kCuTensorMemoryLeak = 721;
inline constexpr CuResult kCuNotPermitted = 800;
inline constexpr CuResult kCuNotSupported = 801;
inline constexpr CuResult kCuSystemDriverMismatch = 803;
inline constexpr CuResult kCuMpsRpcFailure = 806;
inline constexpr CuResult kCuMpsServerNotReady = 807;
inline constexpr CuResult kCuMpsClientTerminated = 810;
inline constexpr CuResult kCuCaptureUnsupported = 900;
inline constexpr CuResult kCuCaptureInvalidated = 901;
inline constexpr CuResult kCuCaptureImplicit = 906;
inline constexpr CuResult kCuExternalDevice = 911;
inline constexpr CuResult kCuUnknown = 999;

// Values of CUdevice_attribute.
inline constexpr int kCuMultiprocessors = 16;
inline constexpr int kCuIntegrated = 18;
inline constexpr int kCuCanMapHostMemory = 19;
inline constexpr int kCuComputeMode = 20;
inline constexpr int kCuAsyncEngines = 40;
inline constexpr int kCuUnifiedAddressing = 41;
inline constexpr int kCuMajor = 75;
inline constexpr int kCuMinor = 76;
inline constexpr int kCuHostPointerForRegistered = 91;
inline constexpr int kCuReadOnlyHostRegister = 113;
inline constexpr int kCuDirectRdma = 116;          // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_*
inline constexpr int kCuDirectRdmaFlushes = 117;   // bits of kCuFlush*
inline constexpr int kCuDirectRdmaOrdering = 118;  // kCuOrdering*
inline constexpr int kCuStreamMemory64 = 122;      // CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
inline constexpr int kCuDmaBuf = 124;

// Scope that sees a network card's writes without a flush (CUGPUDirectRDMAWritesOrdering), and how a flush is made.
inline constexpr int kCuOrderingNone = 0;
inline constexpr int kCuOrderingOwner = 100;
inline constexpr int kCuOrderingAllDevices = 200;
inline constexpr int kCuFlushByHost = 1;     // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST: cuFlushGPUDirectRDMAWrites
inline constexpr int kCuFlushCurrent = 0;    // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX
inline constexpr int kCuFlushToOwner = 100;  // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER

// Values of CUpointer_attribute.
inline constexpr int kCuPointerContext = 1;
inline constexpr int kCuPointerMemoryType = 2;
inline constexpr int kCuPointerDevicePointer = 3;
inline constexpr int kCuPointerSyncMemops = 6;
inline constexpr int kCuPointerIsManaged = 8;
inline constexpr int kCuPointerDeviceOrdinal = 9;
inline constexpr int kCuPointerRangeStart = 11;
inline constexpr int kCuPointerRangeSize = 12;
inline constexpr int kCuPointerMappingSize = 18;
inline constexpr int kCuPointerMappingStart = 19;
inline constexpr unsigned kCuMemoryHost = 1;  // CUmemorytype
inline constexpr unsigned kCuMemoryDevice = 2;

// Flags that calls of the driver take.
inline constexpr unsigned kCuHostPortable = 1;  // CU_MEMHOSTREGISTER_* and CU_MEMHOSTALLOC_*
inline constexpr unsigned kCuHostDeviceMap = 2;
inline constexpr unsigned kCuHostRegisterReadOnly = 8;
inline constexpr unsigned kCuStreamNonBlocking = 1;
inline constexpr unsigned kCuEventBlockingSync = 1;
inline constexpr unsigned kCuEventDisableTiming = 2;
inline constexpr unsigned kCuEventInterprocess = 4;
inline constexpr unsigned kCuWaitValueGeq = 0;  // CU_STREAM_WAIT_VALUE_GEQ
inline constexpr unsigned kCuIpcLazyPeerAccess = 1;
inline constexpr int kCuCaptureNone = 0;        // CU_STREAM_CAPTURE_STATUS_NONE
inline constexpr int kCuCaptureModeGlobal = 0;  // CU_STREAM_CAPTURE_MODE_*, of a thread
inline constexpr int kCuCaptureModeRelaxed = 2;

struct Driver {
  CuResult (*cuInit)(unsigned flags) = nullptr;
  CuResult (*cuDriverGetVersion)(int* version) = nullptr;  // 1000 * major + 10 * minor
  CuResult (*cuGetErrorName)(CuResult error, const char** name) = nullptr;
  CuResult (*cuGetErrorString)(CuResult error, const char** text) = nullptr;

  CuResult (*cuDeviceGetCount)(int* count) = nullptr;
  CuResult (*cuDeviceGet)(CuDevice* device, int ordinal) = nullptr;
  CuResult (*cuDeviceGetName)(char* name, int size, CuDevice device) = nullptr;
  CuResult (*cuDeviceGetUuid)(CuUuid* uuid, CuDevice device) = nullptr;  // _v2
  CuResult (*cuDeviceGetPCIBusId)(char* text, int size, CuDevice device) = nullptr;
  CuResult (*cuDeviceGetAttribute)(int* value, int attribute, CuDevice device) = nullptr;
  CuResult (*cuDeviceTotalMem)(size_t* bytes, CuDevice device) = nullptr;  // _v2
  CuResult (*cuDevicePrimaryCtxRetain)(CuContext* context, CuDevice device) = nullptr;
  CuResult (*cuDevicePrimaryCtxRelease)(CuDevice device) = nullptr;  // _v2
  CuResult (*cuCtxPushCurrent)(CuContext context) = nullptr;         // _v2
  CuResult (*cuCtxPopCurrent)(CuContext* context) = nullptr;         // _v2
  CuResult (*cuCtxGetDevice)(CuDevice* device) = nullptr;
  CuResult (*cuCtxGetStreamPriorityRange)(int* least, int* greatest) = nullptr;

  CuResult (*cuModuleLoadData)(CuModule* module, const void* image) = nullptr;
  CuResult (*cuModuleUnload)(CuModule module) = nullptr;
  CuResult (*cuModuleGetFunction)(CuFunction* function, CuModule module, const char* name) = nullptr;
  CuResult (*cuFuncLoad)(CuFunction function) = nullptr;  // null before CUDA 12.4
  CuResult (*cuLaunchKernel)(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, CuStream stream,
                             void** parameters, void** extra) = nullptr;

  CuResult (*cuMemAlloc)(CuPointer* pointer, size_t bytes) = nullptr;  // _v2
  CuResult (*cuMemFree)(CuPointer pointer) = nullptr;                  // _v2
  // Freed with its context: after a cudaDeviceReset anywhere in the process the CPU faults on it. PinnedMemory
  // (device_memory.h) stays.
  CuResult (*cuMemHostAlloc)(void** pointer, size_t bytes, unsigned flags) = nullptr;
  CuResult (*cuMemFreeHost)(void* pointer) = nullptr;
  CuResult (*cuMemHostRegister)(void* pointer, size_t bytes, unsigned flags) = nullptr;  // _v2
  CuResult (*cuMemHostUnregister)(void* pointer) = nullptr;
  CuResult (*cuMemHostGetDevicePointer)(CuPointer* device, void* host, unsigned flags) = nullptr;  // _v2
  CuResult (*cuPointerGetAttribute)(void* value, int attribute, CuPointer pointer) = nullptr;
  CuResult (*cuPointerSetAttribute)(const void* value, int attribute, CuPointer pointer) = nullptr;
  // Blocks until the writes of network cards into memory of the target are visible to `scope`.
  CuResult (*cuFlushGPUDirectRDMAWrites)(int target, int scope) = nullptr;
  CuResult (*cuMemcpyAsync)(CuPointer to, CuPointer from, size_t bytes, CuStream stream) = nullptr;
  CuResult (*cuMemsetD8Async)(CuPointer to, unsigned char value, size_t bytes, CuStream stream) = nullptr;

  CuResult (*cuStreamCreateWithPriority)(CuStream* stream, unsigned flags, int priority) = nullptr;
  CuResult (*cuStreamDestroy)(CuStream stream) = nullptr;  // _v2
  CuResult (*cuStreamGetCtx)(CuStream stream, CuContext* context) = nullptr;
  CuResult (*cuStreamIsCapturing)(CuStream stream, int* status) = nullptr;
  // Sets what the calling thread may do while any stream is captured; returns the mode before.
  CuResult (*cuThreadExchangeStreamCaptureMode)(int* mode) = nullptr;
  CuResult (*cuStreamSynchronize)(CuStream stream) = nullptr;
  CuResult (*cuStreamWaitEvent)(CuStream stream, CuEvent event, unsigned flags) = nullptr;
  CuResult (*cuStreamWaitValue64)(CuStream stream, CuPointer address, uint64_t value, unsigned flags) = nullptr;  // _v2
  CuResult (*cuStreamWriteValue64)(CuStream stream, CuPointer address, uint64_t value,
                                   unsigned flags) = nullptr;  // _v2
  CuResult (*cuEventCreate)(CuEvent* event, unsigned flags) = nullptr;
  CuResult (*cuEventDestroy)(CuEvent event) = nullptr;  // _v2
  CuResult (*cuEventRecord)(CuEvent event, CuStream stream) = nullptr;
  CuResult (*cuEventQuery)(CuEvent event) = nullptr;
  CuResult (*cuEventSynchronize)(CuEvent event) = nullptr;
  CuResult (*cuEventElapsedTime)(float* ms, CuEvent from, CuEvent to) = nullptr;

  CuResult (*cuIpcGetMemHandle)(CuIpcHandle* handle, CuPointer pointer) = nullptr;
  CuResult (*cuIpcOpenMemHandle)(CuPointer* pointer, CuIpcHandle handle, unsigned flags) = nullptr;  // _v2
  CuResult (*cuIpcCloseMemHandle)(CuPointer pointer) = nullptr;
  CuResult (*cuIpcGetEventHandle)(CuIpcHandle* handle, CuEvent event) = nullptr;
  CuResult (*cuIpcOpenEventHandle)(CuEvent* event, CuIpcHandle handle) = nullptr;

  // A module image to load in place of the embedded one, from a driver that brings its own kernels, as a fake for tests
  // does. Null for the driver of real devices.
  const void* own_kernels = nullptr;
};

}  // namespace kvbm::device
