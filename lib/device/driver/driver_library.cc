#include "device/driver/driver_library.h"

#include <dlfcn.h>

#include <iterator>

namespace kvbm::device {

namespace {

constexpr char kDriverLibrary[] = "libcuda.so.1";
constexpr char kNoDriver[] = "no usable CUDA driver";

// Version of each entry that driver.h declares: the symbol that cuda.h of CUDA 12 and 13 maps the plain name to. Only
// cuEventElapsedTime is the version before 12.8 renamed it; every driver since has both.
#define KVBM_ENTRY(name, symbol) \
  { #name, symbol, offsetof(Driver, name), true }
#define KVBM_NEWER_ENTRY(name, symbol) \
  { #name, symbol, offsetof(Driver, name), false }
constexpr TableEntry kSymbols[] = {
    KVBM_ENTRY(cuInit, "cuInit"),
    KVBM_ENTRY(cuDriverGetVersion, "cuDriverGetVersion"),
    KVBM_ENTRY(cuGetErrorName, "cuGetErrorName"),
    KVBM_ENTRY(cuGetErrorString, "cuGetErrorString"),
    KVBM_ENTRY(cuDeviceGetCount, "cuDeviceGetCount"),
    KVBM_ENTRY(cuDeviceGet, "cuDeviceGet"),
    KVBM_ENTRY(cuDeviceGetName, "cuDeviceGetName"),
    KVBM_ENTRY(cuDeviceGetUuid, "cuDeviceGetUuid_v2"),
    KVBM_ENTRY(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId"),
    KVBM_ENTRY(cuDeviceGetAttribute, "cuDeviceGetAttribute"),
    KVBM_ENTRY(cuDeviceTotalMem, "cuDeviceTotalMem_v2"),
    KVBM_ENTRY(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"),
    KVBM_ENTRY(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2"),
    KVBM_ENTRY(cuCtxPushCurrent, "cuCtxPushCurrent_v2"),
    KVBM_ENTRY(cuCtxPopCurrent, "cuCtxPopCurrent_v2"),
    KVBM_ENTRY(cuCtxGetDevice, "cuCtxGetDevice"),
    KVBM_ENTRY(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange"),
    KVBM_ENTRY(cuModuleLoadData, "cuModuleLoadData"),
    KVBM_ENTRY(cuModuleUnload, "cuModuleUnload"),
    KVBM_ENTRY(cuModuleGetFunction, "cuModuleGetFunction"),
    KVBM_NEWER_ENTRY(cuFuncLoad, "cuFuncLoad"),
    KVBM_ENTRY(cuLaunchKernel, "cuLaunchKernel"),
    KVBM_ENTRY(cuMemAlloc, "cuMemAlloc_v2"),
    KVBM_ENTRY(cuMemFree, "cuMemFree_v2"),
    KVBM_ENTRY(cuMemHostAlloc, "cuMemHostAlloc"),
    KVBM_ENTRY(cuMemFreeHost, "cuMemFreeHost"),
    KVBM_ENTRY(cuMemHostRegister, "cuMemHostRegister_v2"),
    KVBM_ENTRY(cuMemHostUnregister, "cuMemHostUnregister"),
    KVBM_ENTRY(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2"),
    KVBM_ENTRY(cuPointerGetAttribute, "cuPointerGetAttribute"),
    KVBM_ENTRY(cuPointerSetAttribute, "cuPointerSetAttribute"),
    KVBM_ENTRY(cuFlushGPUDirectRDMAWrites, "cuFlushGPUDirectRDMAWrites"),
    KVBM_ENTRY(cuMemcpyAsync, "cuMemcpyAsync"),
    KVBM_ENTRY(cuMemsetD8Async, "cuMemsetD8Async"),
    KVBM_ENTRY(cuStreamCreateWithPriority, "cuStreamCreateWithPriority"),
    KVBM_ENTRY(cuStreamDestroy, "cuStreamDestroy_v2"),
    KVBM_ENTRY(cuStreamGetCtx, "cuStreamGetCtx"),
    KVBM_ENTRY(cuStreamIsCapturing, "cuStreamIsCapturing"),
    KVBM_ENTRY(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode"),
    KVBM_ENTRY(cuStreamSynchronize, "cuStreamSynchronize"),
    KVBM_ENTRY(cuStreamWaitEvent, "cuStreamWaitEvent"),
    KVBM_ENTRY(cuStreamWaitValue64, "cuStreamWaitValue64_v2"),
    KVBM_ENTRY(cuStreamWriteValue64, "cuStreamWriteValue64_v2"),
    KVBM_ENTRY(cuEventCreate, "cuEventCreate"),
    KVBM_ENTRY(cuEventDestroy, "cuEventDestroy_v2"),
    KVBM_ENTRY(cuEventRecord, "cuEventRecord"),
    KVBM_ENTRY(cuEventQuery, "cuEventQuery"),
    KVBM_ENTRY(cuEventSynchronize, "cuEventSynchronize"),
    KVBM_ENTRY(cuEventElapsedTime, "cuEventElapsedTime"),
    KVBM_ENTRY(cuIpcGetMemHandle, "cuIpcGetMemHandle"),
    KVBM_ENTRY(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2"),
    KVBM_ENTRY(cuIpcCloseMemHandle, "cuIpcCloseMemHandle"),
    KVBM_ENTRY(cuIpcGetEventHandle, "cuIpcGetEventHandle"),
    KVBM_ENTRY(cuIpcOpenEventHandle, "cuIpcOpenEventHandle"),
};
#undef KVBM_ENTRY
#undef KVBM_NEWER_ENTRY
static_assert(sizeof(Driver) == (std::size(kSymbols) + 1) * sizeof(void*), "an entry of the table has no symbol");

// The toolkit's stub library for linkers; a machine of several devices that is still starting.
constexpr CuResult kForLinkingOnly = 34, kSystemNotReady = 802;

// Explains a refusal of cuInit to the operator.
const char* advice(CuResult result) {
  switch (result) {
    case kCuNoDevice:
      return "it sees no device (is one visible to this process? CUDA_VISIBLE_DEVICES, the container)";
    case kCuSystemDriverMismatch:
      return "libcuda does not fit the kernel module; reboot, or install both from one release";
    case kForLinkingOnly:
      return "this libcuda is the one for linking only; install the driver";
    case kCuUnknown:
      return "the kernel module may not be loaded, or /dev/nvidia* not accessible";
    case kSystemNotReady:
      return "the system is not ready; is nvidia-fabricmanager running?";
    default:
      return "the driver does not begin";
  }
}

// Shortens "a, b, c, d, e" to the first three names and the number of others.
std::string first_of(const std::string& names) {
  constexpr int kSaid = 3;
  size_t end = 0;
  for (int i = 0; i < kSaid; ++i) {
    end = names.find(", ", i == 0 ? 0 : end + 2);
    if (end == std::string::npos) return names;
  }
  size_t more = 0;
  for (size_t at = end; at != std::string::npos; at = names.find(", ", at + 2)) ++more;
  return names.substr(0, end) + " and " + std::to_string(more) + " more";
}

std::string refusal(const Driver& driver, CuResult result) {
  const char* name = nullptr;
  if (driver.cuGetErrorName(result, &name) != kCuSuccess || name == nullptr) name = "an error";
  return "cuInit says " + std::string(name) + " (" + std::to_string(result) + "): " + advice(result);
}

Result<DriverLibrary> load(const std::string& path) {
  DriverLibrary out;
  out.path = path.empty() ? kDriverLibrary : path;
  const auto opened = open_library(out.path, kNoDriver);
  if (!opened.ok()) return opened.status();
  void* const library = opened.value();
  // Read the version first, alone: an old driver is reported as too old, not by the entries it lacks.
  using GetVersion = CuResult (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(::dlsym(library, "cuDriverGetVersion"));
  if (get_version == nullptr) {
    return Status{Code::unsupported, kNoDriver, out.path + " is no CUDA driver: it has no cuDriverGetVersion"};
  }
  if (get_version(&out.version) == kCuSuccess && out.version < kOldestDriver) {
    return Status{Code::unsupported, kNoDriver,
                  out.path + " speaks CUDA " + cuda_version_text(out.version) + "; kvbm needs " +
                      cuda_version_text(kOldestDriver) + " or newer (driver 525)"};
  }
  using Kernels = const void* (*)();
  if (const auto kernels = reinterpret_cast<Kernels>(::dlsym(library, "kvbm_driver_kernels"))) {
    out.driver.own_kernels = kernels();
  }
  if (const std::string missing = fill_table(library, kSymbols, &out.driver); !missing.empty()) {
    return Status{Code::unsupported, kNoDriver,
                  out.path + " says CUDA " + cuda_version_text(out.version) + " and lacks " + first_of(missing)};
  }
  if (const CuResult result = out.driver.cuInit(0); result != kCuSuccess) {
    return Status{Code::unsupported, kNoDriver, out.path + ": " + refusal(out.driver, result)};
  }
  return out;
}

LoadedLibraries<DriverLibrary>& libraries() {
  static auto* const all = new LoadedLibraries<DriverLibrary>(load);
  return *all;
}

}  // namespace

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::span<const TableEntry> driver_symbols() noexcept { return kSymbols; }

Result<const DriverLibrary*> driver_library(const std::string& path) { return libraries().get(path); }

bool driver_is_loaded() {
  if (void* const library = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD); library != nullptr) {
    ::dlclose(library);  // releases the reference that dlopen took
    return true;
  }
  return libraries().has_any();
}

}  // namespace kvbm::device
