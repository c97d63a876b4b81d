// Devices, contexts, modules and launches of the fake driver.
#include <cstdio>
#include <cstring>

#include "support/fake_cuda/fake_state.h"

namespace kvbm::test {

using namespace kvbm::device;

namespace {

using State = FakeCuda::State;
using Lock = std::unique_lock<std::mutex>;

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxSharedBytes = 48 << 10;  // without a larger limit on request

struct ErrorText {
  CuResult code;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {kCuSuccess, "CUDA_SUCCESS", "no error"},
    {kCuInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kCuOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kCuNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kCuDeinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {kCuNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kCuInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kCuInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kCuInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kCuNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {kCuUncorrectableEcc, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {kCuInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kCuNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kCuNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kCuIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kCuOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {kCuLaunchTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {kCuContextDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {kCuAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {kCuNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered region"},
    {kCuLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kCuNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kCuSystemDriverMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {kCuUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorText* find_error(CuResult code) {
  for (const ErrorText& error : kErrors) {
    if (error.code == code) return &error;
  }
  return nullptr;
}

// Runs an entry about one device.
template <class Body>
CuResult on_device(const char* name, CuDevice device, Body&& body) {
  return fake_entry(name, Need::initialized, [&](State& state, FakeContext*, Lock& lock) -> CuResult {
    if (device < 0 || static_cast<size_t>(device) >= state.options.devices.size()) return kCuInvalidDevice;
    return body(state, state.options.devices[static_cast<size_t>(device)], lock);
  });
}

void copy_text(const std::string& text, char* out, int size) {
  std::snprintf(out, static_cast<size_t>(size), "%s", text.c_str());
}

CuResult init(unsigned flags) {
  return fake_entry("cuInit", Need::nothing, [&](State& state, FakeContext*, Lock&) -> CuResult {
    if (flags != 0) return kCuInvalidValue;
    if (state.options.init != kCuSuccess) return state.options.init;
    if (state.options.devices.empty()) return kCuNoDevice;
    state.initialized = true;
    return kCuSuccess;
  });
}

CuResult get_version(int* version) {
  return fake_entry("cuDriverGetVersion", Need::nothing, [&](State& state, FakeContext*, Lock&) -> CuResult {
    *version = state.options.version;
    return kCuSuccess;
  });
}

CuResult get_error_name(CuResult code, const char** name) {
  const ErrorText* error = find_error(code);
  *name = error == nullptr ? nullptr : error->name;
  return error == nullptr ? kCuInvalidValue : kCuSuccess;
}

CuResult get_error_string(CuResult code, const char** text) {
  const ErrorText* error = find_error(code);
  *text = error == nullptr ? nullptr : error->text;
  return error == nullptr ? kCuInvalidValue : kCuSuccess;
}

CuResult get_count(int* count) {
  return fake_entry("cuDeviceGetCount", Need::initialized, [&](State& state, FakeContext*, Lock&) -> CuResult {
    *count = static_cast<int>(state.options.devices.size());
    return kCuSuccess;
  });
}

CuResult get_device(CuDevice* device, int ordinal) {
  return on_device("cuDeviceGet", ordinal, [&](State&, const FakeDevice&, Lock&) -> CuResult {
    *device = ordinal;
    return kCuSuccess;
  });
}

CuResult get_name(char* name, int size, CuDevice device) {
  return on_device("cuDeviceGetName", device, [&](State&, const FakeDevice& what, Lock&) -> CuResult {
    copy_text(what.name, name, size);
    return kCuSuccess;
  });
}

CuResult get_uuid(CuUuid* uuid, CuDevice device) {
  return on_device("cuDeviceGetUuid", device, [&](State&, const FakeDevice&, Lock&) -> CuResult {
    std::memset(uuid->bytes, 0xFA, sizeof uuid->bytes);
    uuid->bytes[15] = static_cast<char>(device);
    return kCuSuccess;
  });
}

CuResult get_pci(char* text, int size, CuDevice device) {
  return on_device("cuDeviceGetPCIBusId", device, [&](State&, const FakeDevice&, Lock&) -> CuResult {
    std::snprintf(text, static_cast<size_t>(size), "FFFF:%02X:00.0", static_cast<unsigned>(device) & 0xFFU);
    return kCuSuccess;
  });
}

CuResult get_attribute(int* value, int attribute, CuDevice device) {
  return on_device("cuDeviceGetAttribute", device, [&](State&, const FakeDevice& what, Lock&) -> CuResult {
    switch (attribute) {
      case kCuMultiprocessors:
        *value = what.multiprocessors;
        return kCuSuccess;
      case kCuIntegrated:
        *value = what.integrated ? 1 : 0;
        return kCuSuccess;
      case kCuCanMapHostMemory:
        *value = what.maps_host ? 1 : 0;
        return kCuSuccess;
      case kCuComputeMode:
        *value = what.compute_mode;
        return kCuSuccess;
      case kCuAsyncEngines:
        *value = what.copy_engines;
        return kCuSuccess;
      case kCuUnifiedAddressing:
        *value = what.unified_addressing ? 1 : 0;
        return kCuSuccess;
      case kCuMajor:
        *value = what.major;
        return kCuSuccess;
      case kCuMinor:
        *value = what.minor;
        return kCuSuccess;
      case kCuHostPointerForRegistered:
        *value = 1;
        return kCuSuccess;
      case kCuStreamMemory64:
        *value = what.stream_memory_64 ? 1 : 0;
        return kCuSuccess;
      case kCuDirectRdma:
        *value = what.direct_rdma ? 1 : 0;
        return kCuSuccess;
      case kCuDmaBuf:
        *value = what.dma_buf ? 1 : 0;
        return kCuSuccess;
      case kCuDirectRdmaFlushes:
        *value = what.direct_flushes;
        return kCuSuccess;
      case kCuDirectRdmaOrdering:
        *value = what.direct_ordering;
        return kCuSuccess;
      case kCuReadOnlyHostRegister:
        *value = what.registers_read_only ? 1 : 0;
        return kCuSuccess;
      default:
        return kCuInvalidValue;
    }
  });
}

CuResult total_memory(size_t* bytes, CuDevice device) {
  return on_device("cuDeviceTotalMem", device, [&](State&, const FakeDevice& what, Lock&) -> CuResult {
    *bytes = what.memory_bytes;
    return kCuSuccess;
  });
}

CuResult retain_context(CuContext* context, CuDevice device) {
  return on_device("cuDevicePrimaryCtxRetain", device, [&](State& state, const FakeDevice&, Lock&) -> CuResult {
    FakeContext& own = state.retain(device, false);
    if (own.sticky != kCuSuccess) {
      --own.retained;
      return own.sticky;
    }
    *context = own.handle;
    return kCuSuccess;
  });
}

CuResult release_context(CuDevice device) {
  return on_device("cuDevicePrimaryCtxRelease", device, [&](State& state, const FakeDevice&, Lock& lock) -> CuResult {
    FakeContext* context = state.context_of(device);
    if (context == nullptr) return kCuInvalidContext;
    if (--context->retained == 0) state.destroy(*context, lock);
    return kCuSuccess;
  });
}

CuResult push_context(CuContext context) {
  return fake_entry("cuCtxPushCurrent", Need::initialized, [&](State& state, FakeContext*, Lock&) -> CuResult {
    if (state.find_context(context) == nullptr) return kCuInvalidContext;
    fake_current_contexts().push_back(context);
    return kCuSuccess;
  });
}

CuResult pop_context(CuContext* context) {
  return fake_entry("cuCtxPopCurrent", Need::initialized, [&](State&, FakeContext*, Lock&) -> CuResult {
    std::vector<CuContext>& stack = fake_current_contexts();
    if (stack.empty()) return kCuInvalidContext;
    if (context != nullptr) *context = stack.back();
    stack.pop_back();
    return kCuSuccess;
  });
}

CuResult context_device(CuDevice* device) {
  return fake_entry("cuCtxGetDevice", Need::initialized, [&](State& state, FakeContext*, Lock&) -> CuResult {
    std::vector<CuContext>& stack = fake_current_contexts();
    if (stack.empty()) return kCuInvalidContext;
    *device = state.find_context(stack.back())->ordinal;
    return kCuSuccess;
  });
}

CuResult priority_range(int* least, int* greatest) {
  return fake_entry("cuCtxGetStreamPriorityRange", Need::context, [&](State&, FakeContext*, Lock&) -> CuResult {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return kCuSuccess;
  });
}

CuResult load_module(CuModule* module, const void* image) {
  return fake_entry("cuModuleLoadData", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
    if (image == nullptr) return kCuInvalidValue;
    if (state.options.image != kCuSuccess) return state.options.image;
    *module = state.next_handle<CuModule>();
    state.modules[*module] = FakeModule{context->handle};
    return kCuSuccess;
  });
}

CuResult unload_module(CuModule module) {
  return fake_entry("cuModuleUnload", Need::context, [&](State& state, FakeContext*, Lock&) -> CuResult {
    if (state.modules.erase(module) == 0) return kCuInvalidHandle;
    std::erase_if(state.functions, [&](const auto& entry) { return entry.second.module == module; });
    return kCuSuccess;
  });
}

CuResult get_function(CuFunction* function, CuModule module, const char* name) {
  return fake_entry("cuModuleGetFunction", Need::context, [&](State& state, FakeContext*, Lock&) -> CuResult {
    if (state.modules.count(module) == 0) return kCuInvalidHandle;
    if (state.kernels.count(name) == 0) return kCuNotFound;
    *function = state.next_handle<CuFunction>();
    state.functions[*function] = FakeFunction{module, name};
    return kCuSuccess;
  });
}

CuResult load_function(CuFunction function) {
  return fake_entry("cuFuncLoad", Need::context, [&](State& state, FakeContext*, Lock&) -> CuResult {
    return state.functions.count(function) == 0 ? kCuInvalidHandle : kCuSuccess;
  });
}

// Copies of a launch's parameters, which live until the launch has run.
struct Launch {
  FakeLaunch what;
  std::vector<std::vector<std::byte>> values;
  std::vector<void*> pointers;
};

CuResult execute(State& state, const std::string& name, const Launch& launch) {
  FakeKernel run;
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    State::Kernel& kernel = state.kernels[name];
    const uint64_t of_name = ++kernel.executed, of_any = ++state.executions;
    for (const State::Fault& one : state.kernel_faults) {
      const uint64_t n = one.what.empty() ? of_any : of_name;
      if ((one.what.empty() || one.what == name) && n >= one.from && n <= one.to) return one.code;
    }
    run = kernel.run;
  }
  return run(launch.what);
}

CuResult launch_kernel(CuFunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared_bytes, CuStream handle, void** parameters, void** extra) {
  return fake_entry("cuLaunchKernel", Need::context, [&](State& state, FakeContext* context, Lock&) -> CuResult {
    const auto at = state.functions.find(function);
    FakeStream* stream = state.find_stream(handle, context);
    if (at == state.functions.end() || stream == nullptr) return kCuInvalidHandle;
    const auto module = state.modules.find(at->second.module);
    if (module == state.modules.end() || module->second.context != stream->context) return kCuInvalidHandle;
    if (CuResult result = state.usable(stream->context); result != kCuSuccess) return result;
    const bool fits = gx > 0 && gy > 0 && gz > 0 && bx > 0 && by > 0 && bz > 0 &&
                      static_cast<uint64_t>(bx) * by * bz <= kMaxThreads && gy <= 65535 && gz <= 65535 &&
                      shared_bytes <= kMaxSharedBytes && extra == nullptr;
    if (!fits) return kCuInvalidValue;
    auto launch = std::make_shared<Launch>();
    launch->what = FakeLaunch{{gx, gy, gz}, {bx, by, bz}, shared_bytes, nullptr, stream->ordinal};
    const std::string name = at->second.name;
    const std::vector<size_t>& sizes = state.kernels[name].parameter_bytes;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto* from = static_cast<const std::byte*>(parameters[i]);
      launch->values.emplace_back(from, from + sizes[i]);
    }
    for (std::vector<std::byte>& value : launch->values) launch->pointers.push_back(value.data());
    launch->what.parameters = launch->pointers.data();
    state.push(*stream, FakeWork{{}, false, [&state, name, launch] { return execute(state, name, *launch); }, {}});
    return kCuSuccess;
  });
}

}  // namespace

void add_fake_device_entries(Driver& driver) {
  driver.cuInit = init;
  driver.cuDriverGetVersion = get_version;
  driver.cuGetErrorName = get_error_name;
  driver.cuGetErrorString = get_error_string;
  driver.cuDeviceGetCount = get_count;
  driver.cuDeviceGet = get_device;
  driver.cuDeviceGetName = get_name;
  driver.cuDeviceGetUuid = get_uuid;
  driver.cuDeviceGetPCIBusId = get_pci;
  driver.cuDeviceGetAttribute = get_attribute;
  driver.cuDeviceTotalMem = total_memory;
  driver.cuDevicePrimaryCtxRetain = retain_context;
  driver.cuDevicePrimaryCtxRelease = release_context;
  driver.cuCtxPushCurrent = push_context;
  driver.cuCtxPopCurrent = pop_context;
  driver.cuCtxGetDevice = context_device;
  driver.cuCtxGetStreamPriorityRange = priority_range;
  driver.cuModuleLoadData = load_module;
  driver.cuModuleUnload = unload_module;
  driver.cuModuleGetFunction = get_function;
  driver.cuFuncLoad = load_function;
  driver.cuLaunchKernel = launch_kernel;
}

}  // namespace kvbm::test
