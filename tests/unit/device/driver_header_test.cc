// Compares driver.h with NVIDIA's cuda.h: values, signatures, and the names under which a library has the entries.
// cuda.h comes first: it renames functions by macros (cuMemAlloc is cuMemAlloc_v2), and the members of the table with
// them.
#ifdef KVBM_HAVE_CUDA_HEADER
#include <cuda.h>
#endif

#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>

#include "device/driver/driver_library.h"

namespace driver_header_test {
namespace {

#ifdef KVBM_HAVE_CUDA_HEADER

using namespace kvbm::device;

// Returns whether two types look equal to a caller. Ours are other names for NVIDIA's: enumerations are integers here.
template <class A, class B>
constexpr bool alike();

template <class A, class B>
struct Alike {
  static constexpr bool value = [] {
    if constexpr (std::is_void_v<A> || std::is_void_v<B>)
      return std::is_void_v<A> && std::is_void_v<B>;
    else if constexpr (std::is_class_v<A> && std::is_class_v<B>)
      return true;  // sizes are compared by name below
    else if constexpr (std::is_enum_v<A> || std::is_enum_v<B>)
      return sizeof(A) == sizeof(B);
    else if constexpr (std::is_integral_v<A> && std::is_integral_v<B>)
      return sizeof(A) == sizeof(B) && std::is_signed_v<A> == std::is_signed_v<B>;
    else
      return std::is_same_v<A, B>;
  }();
};
template <class A, class B>
struct Alike<A*, B*> {
  static constexpr bool value =
      std::is_const_v<A> == std::is_const_v<B> && alike<std::remove_const_t<A>, std::remove_const_t<B>>();
};
template <class A, class... As, class B, class... Bs>
struct Alike<A(As...), B(Bs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(As) != sizeof...(Bs))
      return false;
    else
      return alike<A, B>() && (alike<As, Bs>() && ...);
  }();
};

template <class A, class B>
constexpr bool alike() {
  return Alike<A, B>::value;
}

static_assert(alike<int(const char**, void*), CUresult(const char**, void*)>());
static_assert(!alike<int(const char**, void*), CUresult(char**, void*)>());
static_assert(!alike<int(size_t), CUresult(int)>());
static_assert(!alike<int(int), CUresult(int, int)>());
static_assert(sizeof(CuUuid) == sizeof(CUuuid) && sizeof(CuIpcHandle) == sizeof(CUipcMemHandle) &&
              sizeof(CuIpcHandle) == sizeof(CUipcEventHandle) && alignof(CuIpcHandle) == alignof(CUipcMemHandle));
static_assert(alike<CuPointer, CUdeviceptr>() && alike<CuDevice, CUdevice>() && alike<CuResult, CUresult>());

#define NAME_OF(x) NAME_OF_EXPANDED(x)
#define NAME_OF_EXPANDED(x) #x

// clang-format off
#define FOR_EVERY_ENTRY(X)                                                                                            \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount) X(cuDeviceGet)            \
  X(cuDeviceGetName) X(cuDeviceGetUuid) X(cuDeviceGetPCIBusId) X(cuDeviceGetAttribute) X(cuDeviceTotalMem)            \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxGetDevice)   \
  X(cuCtxGetStreamPriorityRange) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncLoad)           \
  X(cuLaunchKernel)                                                                                                   \
  X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostRegister) X(cuMemHostUnregister)           \
  X(cuMemHostGetDevicePointer) X(cuPointerGetAttribute) X(cuPointerSetAttribute) X(cuFlushGPUDirectRDMAWrites)        \
  X(cuMemcpyAsync) X(cuMemsetD8Async)                                                                                 \
  X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamGetCtx) X(cuStreamIsCapturing)                           \
  X(cuThreadExchangeStreamCaptureMode) X(cuStreamSynchronize) X(cuStreamWaitEvent)                                    \
  X(cuStreamWaitValue64) X(cuStreamWriteValue64) X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery)  \
  X(cuEventSynchronize) X(cuEventElapsedTime) X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle)       \
  X(cuIpcGetEventHandle) X(cuIpcOpenEventHandle)
// clang-format on

struct Entry {
  const char* name;
  const char* symbol;
};

// #entry is the plain name, before the macros of cuda.h are applied by NAME_OF.
constexpr Entry kEntries[] = {
#define X(entry) {#entry, NAME_OF(entry)},
    FOR_EVERY_ENTRY(X)
#undef X
};

#define X(entry)                                                                                                    \
  static_assert(alike<std::remove_pointer_t<decltype(Driver::entry)>, std::remove_pointer_t<decltype(&::entry)>>(), \
                "another signature than cuda.h: " #entry);
FOR_EVERY_ENTRY(X)
#undef X

TEST(DriverHeaderTest, entries_are_found_under_the_names_of_the_header) {
  const auto symbols = driver_symbols();
  ASSERT_EQ(symbols.size(), std::size(kEntries));
  for (size_t i = 0; i < symbols.size(); ++i) {
    EXPECT_STREQ(symbols[i].entry, kEntries[i].name);
    // Renamed by 12.8, and older drivers have only the first name; the signature is unchanged.
    const bool renamed = std::strcmp(symbols[i].entry, "cuEventElapsedTime") == 0;
    EXPECT_STREQ(symbols[i].symbol, renamed ? "cuEventElapsedTime" : kEntries[i].symbol);
  }
}

TEST(DriverHeaderTest, errors_have_their_numbers) {
  EXPECT_EQ(kCuSuccess, CUDA_SUCCESS);
  EXPECT_EQ(kCuInvalidValue, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(kCuOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(kCuNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(kCuDeinitialized, CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(kCuNoDevice, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(kCuInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(kCuInvalidImage, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(kCuInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(kCuNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(kCuUncorrectableEcc, CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(kCuUncorrectableNvlink, CUDA_ERROR_NVLINK_UNCORRECTABLE);
  EXPECT_EQ(kCuContained, CUDA_ERROR_CONTAINED);
  EXPECT_EQ(kCuInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(kCuNotFound, CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(kCuNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(kCuIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(kCuOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(kCuLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_EQ(kCuContextDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(kCuAssert, CUDA_ERROR_ASSERT);
  EXPECT_EQ(kCuAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(kCuNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(kCuHardwareStack, CUDA_ERROR_HARDWARE_STACK_ERROR);
  EXPECT_EQ(kCuIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
  EXPECT_EQ(kCuMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(kCuInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
  EXPECT_EQ(kCuInvalidPc, CUDA_ERROR_INVALID_PC);
  EXPECT_EQ(kCuLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(kCuNotPermitted, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(kCuNotSupported, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(kCuSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  EXPECT_EQ(kCuMpsRpcFailure, CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_EQ(kCuMpsServerNotReady, CUDA_ERROR_MPS_SERVER_NOT_READY);
  EXPECT_EQ(kCuMpsClientTerminated, CUDA_ERROR_MPS_CLIENT_TERMINATED);
  EXPECT_EQ(kCuCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(kCuCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(kCuCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(kCuExternalDevice, CUDA_ERROR_EXTERNAL_DEVICE);
  EXPECT_EQ(kCuUnknown, CUDA_ERROR_UNKNOWN);
#if CUDA_VERSION >= 12080
  EXPECT_EQ(kCuTensorMemoryLeak, CUDA_ERROR_TENSOR_MEMORY_LEAK);
#endif
}

TEST(DriverHeaderTest, attributes_and_flags_have_their_numbers) {
  EXPECT_EQ(kCuMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(kCuIntegrated, CU_DEVICE_ATTRIBUTE_INTEGRATED);
  EXPECT_EQ(kCuCanMapHostMemory, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  EXPECT_EQ(kCuComputeMode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
  EXPECT_EQ(kCuAsyncEngines, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  EXPECT_EQ(kCuUnifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  EXPECT_EQ(kCuMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(kCuMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(kCuHostPointerForRegistered, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
  EXPECT_EQ(kCuReadOnlyHostRegister, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
  EXPECT_EQ(kCuDirectRdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
  EXPECT_EQ(kCuDirectRdmaFlushes, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
  EXPECT_EQ(kCuDirectRdmaOrdering, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
  EXPECT_EQ(kCuStreamMemory64, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  EXPECT_EQ(kCuDmaBuf, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
  EXPECT_EQ(kCuOrderingNone, static_cast<int>(CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE));
  EXPECT_EQ(kCuOrderingOwner, static_cast<int>(CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER));
  EXPECT_EQ(kCuOrderingAllDevices, static_cast<int>(CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES));
  EXPECT_EQ(kCuFlushByHost, static_cast<int>(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST));
  EXPECT_EQ(kCuFlushCurrent, static_cast<int>(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX));
  EXPECT_EQ(kCuFlushToOwner, static_cast<int>(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
  EXPECT_EQ(kCuPointerSyncMemops, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
  EXPECT_EQ(kCuPointerContext, CU_POINTER_ATTRIBUTE_CONTEXT);
  EXPECT_EQ(kCuPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  EXPECT_EQ(kCuPointerDevicePointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
  EXPECT_EQ(kCuPointerIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
  EXPECT_EQ(kCuPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  EXPECT_EQ(kCuPointerRangeStart, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  EXPECT_EQ(kCuPointerRangeSize, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  EXPECT_EQ(kCuPointerMappingSize, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
  EXPECT_EQ(kCuPointerMappingStart, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
  EXPECT_EQ(kCuMemoryHost, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  EXPECT_EQ(kCuMemoryDevice, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(kCuHostPortable, static_cast<unsigned>(CU_MEMHOSTREGISTER_PORTABLE));
  EXPECT_EQ(kCuHostPortable, static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE));
  EXPECT_EQ(kCuHostDeviceMap, static_cast<unsigned>(CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT_EQ(kCuHostDeviceMap, static_cast<unsigned>(CU_MEMHOSTALLOC_DEVICEMAP));
  EXPECT_EQ(kCuHostRegisterReadOnly, static_cast<unsigned>(CU_MEMHOSTREGISTER_READ_ONLY));
  EXPECT_EQ(kCuStreamNonBlocking, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(kCuEventBlockingSync, static_cast<unsigned>(CU_EVENT_BLOCKING_SYNC));
  EXPECT_EQ(kCuEventDisableTiming, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(kCuEventInterprocess, static_cast<unsigned>(CU_EVENT_INTERPROCESS));
  EXPECT_EQ(kCuWaitValueGeq, static_cast<unsigned>(CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_EQ(kCuCaptureNone, static_cast<int>(CU_STREAM_CAPTURE_STATUS_NONE));
  EXPECT_EQ(kCuCaptureModeGlobal, static_cast<int>(CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(kCuCaptureModeRelaxed, static_cast<int>(CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(kCuIpcLazyPeerAccess, static_cast<unsigned>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

#else

TEST(DriverHeaderTest, is_compared_with_nvidias) {
  GTEST_SKIP() << "there is no cuda.h on this machine (tools/setup --cuda fetches one)";
}

#endif

}  // namespace
}  // namespace driver_header_test
