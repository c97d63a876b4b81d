// libtest_cuda_driver.so: the fake of the CUDA driver under the names that libcuda has, so that what loads a driver is
// tested with a library. Set up once, by the text of the environment variable KVBM_FAKE_CUDA (FakeCuda::apply), and by
// kvbm_fake_apply later. With the emulated kernels where they are linked in. A program that has a FakeCuda itself may
// lend it (kvbm_fake_lend), before the library is loaded as a driver: the names are then those of that one's table.
#include <csignal>
#include <cstdlib>

#include "support/fake_cuda/bench_kernels.h"
#include "support/fake_cuda/fake_cuda.h"

namespace kvbm::test {
// Of tests/support/cuda_emulation.
__attribute__((weak)) void add_emulated_kernels(FakeCuda& fake);
}  // namespace kvbm::test

namespace {

using namespace kvbm::device;

// Lives until the process ends: streams may run until then.
kvbm::test::FakeCuda& fake() {
  static kvbm::test::FakeCuda* const one = [] {
    auto* const made = new kvbm::test::FakeCuda();
    if (&kvbm::test::add_emulated_kernels != nullptr) kvbm::test::add_emulated_kernels(*made);
    kvbm::test::add_bench_kernels(*made);
    const char* text = std::getenv("KVBM_FAKE_CUDA");
    if (text != nullptr && !made->apply(text)) std::abort();  // a test that is spelled wrong
    return made;
  }();
  return *one;
}

const Driver* lent = nullptr;

const Driver& table() { return lent != nullptr ? *lent : fake().driver(); }

}  // namespace

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT void kvbm_fake_lend(const Driver* table) { lent = table; }
FAKE_EXPORT int kvbm_fake_apply(const char* text) { return fake().apply(text) ? 1 : 0; }
FAKE_EXPORT uint64_t kvbm_fake_calls(const char* entry) { return fake().calls(entry); }
FAKE_EXPORT uint64_t kvbm_fake_launches(const char* kernel) { return fake().launches(kernel); }
FAKE_EXPORT CuPointer kvbm_fake_allocate(int ordinal, size_t bytes) { return fake().allocate(ordinal, bytes); }
FAKE_EXPORT CuPointer kvbm_fake_allocate_managed(int o, size_t bytes) { return fake().allocate_managed(o, bytes); }
FAKE_EXPORT void kvbm_fake_free(CuPointer pointer) { fake().free(pointer); }
FAKE_EXPORT CuStream kvbm_fake_make_stream(int ordinal) { return fake().make_stream(ordinal); }
FAKE_EXPORT void kvbm_fake_synchronize(CuStream stream) { fake().synchronize(stream); }
FAKE_EXPORT int kvbm_fake_copy(CuPointer to, CuPointer from, size_t bytes, CuStream stream) {
  return fake().copy(to, from, bytes, stream) ? 1 : 0;
}
FAKE_EXPORT void kvbm_fake_hold(CuStream stream, int on) { on != 0 ? fake().hold(stream) : fake().release(stream); }
FAKE_EXPORT void kvbm_fake_capture(CuStream stream, int on) { fake().capture(stream, on != 0); }
FAKE_EXPORT int kvbm_fake_capture_is_whole(CuStream stream) { return fake().capture_is_whole(stream) ? 1 : 0; }
FAKE_EXPORT void kvbm_fake_wait_idle() { fake().wait_idle(); }
// Entry that device/driver/driver_library looks for in any driver: its own kernels, which the driver of real devices
// lacks.
FAKE_EXPORT const void* kvbm_driver_kernels() { return table().own_kernels; }

// A driver may think that the process is its own.
FAKE_EXPORT CuResult cuInit(unsigned flags) {
  if (std::getenv("KVBM_FAKE_CUDA_HANDLERS") != nullptr) {
    for (const int number : {SIGSEGV, SIGINT}) std::signal(number, SIG_IGN);
  }
  return table().cuInit(flags);
}
FAKE_EXPORT CuResult cuDriverGetVersion(int* version) { return table().cuDriverGetVersion(version); }
FAKE_EXPORT CuResult cuGetErrorName(CuResult e, const char** name) { return table().cuGetErrorName(e, name); }
FAKE_EXPORT CuResult cuGetErrorString(CuResult e, const char** text) { return table().cuGetErrorString(e, text); }
FAKE_EXPORT CuResult cuDeviceGetCount(int* count) { return table().cuDeviceGetCount(count); }
FAKE_EXPORT CuResult cuDeviceGet(CuDevice* device, int ordinal) { return table().cuDeviceGet(device, ordinal); }
FAKE_EXPORT CuResult cuDeviceGetName(char* name, int size, CuDevice d) {
  return table().cuDeviceGetName(name, size, d);
}
FAKE_EXPORT CuResult cuDeviceGetUuid_v2(CuUuid* uuid, CuDevice d) { return table().cuDeviceGetUuid(uuid, d); }
FAKE_EXPORT CuResult cuDeviceGetPCIBusId(char* t, int n, CuDevice d) { return table().cuDeviceGetPCIBusId(t, n, d); }
FAKE_EXPORT CuResult cuDeviceGetAttribute(int* v, int a, CuDevice d) { return table().cuDeviceGetAttribute(v, a, d); }
FAKE_EXPORT CuResult cuDeviceTotalMem_v2(size_t* bytes, CuDevice d) { return table().cuDeviceTotalMem(bytes, d); }
FAKE_EXPORT CuResult cuDevicePrimaryCtxRetain(CuContext* c, CuDevice d) {
  return table().cuDevicePrimaryCtxRetain(c, d);
}
FAKE_EXPORT CuResult cuDevicePrimaryCtxRelease_v2(CuDevice d) { return table().cuDevicePrimaryCtxRelease(d); }
FAKE_EXPORT CuResult cuCtxPushCurrent_v2(CuContext c) { return table().cuCtxPushCurrent(c); }
FAKE_EXPORT CuResult cuCtxPopCurrent_v2(CuContext* c) { return table().cuCtxPopCurrent(c); }
FAKE_EXPORT CuResult cuCtxGetDevice(CuDevice* d) { return table().cuCtxGetDevice(d); }
FAKE_EXPORT CuResult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return table().cuCtxGetStreamPriorityRange(least, greatest);
}
FAKE_EXPORT CuResult cuModuleLoadData(CuModule* module, const void* image) {
  return table().cuModuleLoadData(module, image);
}
FAKE_EXPORT CuResult cuModuleUnload(CuModule module) { return table().cuModuleUnload(module); }
FAKE_EXPORT CuResult cuModuleGetFunction(CuFunction* function, CuModule module, const char* name) {
  return table().cuModuleGetFunction(function, module, name);
}
FAKE_EXPORT CuResult cuFuncLoad(CuFunction function) { return table().cuFuncLoad(function); }
FAKE_EXPORT CuResult cuLaunchKernel(CuFunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                    unsigned bz, unsigned shared_bytes, CuStream s, void** parameters, void** extra) {
  return table().cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared_bytes, s, parameters, extra);
}
FAKE_EXPORT CuResult cuMemAlloc_v2(CuPointer* p, size_t bytes) { return table().cuMemAlloc(p, bytes); }
FAKE_EXPORT CuResult cuMemFree_v2(CuPointer p) { return table().cuMemFree(p); }
FAKE_EXPORT CuResult cuMemHostAlloc(void** p, size_t bytes, unsigned f) { return table().cuMemHostAlloc(p, bytes, f); }
FAKE_EXPORT CuResult cuMemFreeHost(void* p) { return table().cuMemFreeHost(p); }
FAKE_EXPORT CuResult cuMemHostRegister_v2(void* p, size_t bytes, unsigned f) {
  return table().cuMemHostRegister(p, bytes, f);
}
FAKE_EXPORT CuResult cuMemHostUnregister(void* p) { return table().cuMemHostUnregister(p); }
FAKE_EXPORT CuResult cuMemHostGetDevicePointer_v2(CuPointer* d, void* host, unsigned f) {
  return table().cuMemHostGetDevicePointer(d, host, f);
}
FAKE_EXPORT CuResult cuPointerGetAttribute(void* value, int attribute, CuPointer p) {
  return table().cuPointerGetAttribute(value, attribute, p);
}
FAKE_EXPORT CuResult cuPointerSetAttribute(const void* value, int attribute, CuPointer p) {
  return table().cuPointerSetAttribute(value, attribute, p);
}
FAKE_EXPORT CuResult cuFlushGPUDirectRDMAWrites(int target, int scope) {
  return table().cuFlushGPUDirectRDMAWrites(target, scope);
}
FAKE_EXPORT CuResult cuMemcpyAsync(CuPointer to, CuPointer from, size_t bytes, CuStream s) {
  return table().cuMemcpyAsync(to, from, bytes, s);
}
FAKE_EXPORT CuResult cuMemsetD8Async(CuPointer to, unsigned char value, size_t bytes, CuStream s) {
  return table().cuMemsetD8Async(to, value, bytes, s);
}
FAKE_EXPORT CuResult cuStreamCreateWithPriority(CuStream* s, unsigned flags, int priority) {
  return table().cuStreamCreateWithPriority(s, flags, priority);
}
FAKE_EXPORT CuResult cuStreamDestroy_v2(CuStream s) { return table().cuStreamDestroy(s); }
FAKE_EXPORT CuResult cuStreamGetCtx(CuStream s, CuContext* c) { return table().cuStreamGetCtx(s, c); }
FAKE_EXPORT CuResult cuStreamIsCapturing(CuStream s, int* status) { return table().cuStreamIsCapturing(s, status); }
// Of captures the library says no more than whether one stayed whole: graphs have nothing in them.
FAKE_EXPORT CuResult cuStreamBeginCapture_v2(CuStream s, int) {
  fake().capture(s, true);
  return kCuSuccess;
}
FAKE_EXPORT CuResult cuStreamEndCapture(CuStream s, void** graph) {
  const bool whole = fake().capture_is_whole(s);
  fake().capture(s, false);
  *graph = whole ? &fake() : nullptr;
  return whole ? kCuSuccess : kCuCaptureInvalidated;
}
FAKE_EXPORT CuResult cuGraphDestroy(void*) { return kCuSuccess; }
FAKE_EXPORT CuResult cuThreadExchangeStreamCaptureMode(int* mode) {
  return table().cuThreadExchangeStreamCaptureMode(mode);
}
FAKE_EXPORT CuResult cuStreamSynchronize(CuStream s) { return table().cuStreamSynchronize(s); }
FAKE_EXPORT CuResult cuStreamWaitEvent(CuStream s, CuEvent e, unsigned f) { return table().cuStreamWaitEvent(s, e, f); }
FAKE_EXPORT CuResult cuStreamWaitValue64_v2(CuStream s, CuPointer a, uint64_t value, unsigned f) {
  return table().cuStreamWaitValue64(s, a, value, f);
}
FAKE_EXPORT CuResult cuStreamWriteValue64_v2(CuStream s, CuPointer a, uint64_t value, unsigned f) {
  return table().cuStreamWriteValue64(s, a, value, f);
}
FAKE_EXPORT CuResult cuEventCreate(CuEvent* e, unsigned flags) { return table().cuEventCreate(e, flags); }
FAKE_EXPORT CuResult cuEventDestroy_v2(CuEvent e) { return table().cuEventDestroy(e); }
FAKE_EXPORT CuResult cuEventRecord(CuEvent e, CuStream s) { return table().cuEventRecord(e, s); }
FAKE_EXPORT CuResult cuEventQuery(CuEvent e) { return table().cuEventQuery(e); }
FAKE_EXPORT CuResult cuEventSynchronize(CuEvent e) { return table().cuEventSynchronize(e); }
FAKE_EXPORT CuResult cuEventElapsedTime(float* ms, CuEvent from, CuEvent to) {
  return table().cuEventElapsedTime(ms, from, to);
}
FAKE_EXPORT CuResult cuIpcGetMemHandle(CuIpcHandle* handle, CuPointer p) {
  return table().cuIpcGetMemHandle(handle, p);
}
FAKE_EXPORT CuResult cuIpcOpenMemHandle_v2(CuPointer* p, CuIpcHandle handle, unsigned flags) {
  return table().cuIpcOpenMemHandle(p, handle, flags);
}
FAKE_EXPORT CuResult cuIpcCloseMemHandle(CuPointer p) { return table().cuIpcCloseMemHandle(p); }
FAKE_EXPORT CuResult cuIpcGetEventHandle(CuIpcHandle* handle, CuEvent e) {
  return table().cuIpcGetEventHandle(handle, e);
}
FAKE_EXPORT CuResult cuIpcOpenEventHandle(CuEvent* e, CuIpcHandle handle) {
  return table().cuIpcOpenEventHandle(e, handle);
}
