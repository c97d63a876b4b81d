// Checks that the fake driver follows the driver's reference, as far as other tests rely on it.
#include "support/fake_cuda/fake_cuda.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

namespace fake_cuda_test {
namespace {

using namespace kvbm::device;
using kvbm::test::FakeCuda;
using kvbm::test::FakeCudaOptions;
using kvbm::test::FakeDevice;
using kvbm::test::FakeLaunch;

std::byte* at(CuPointer pointer) { return reinterpret_cast<std::byte*>(pointer); }
CuPointer of(const void* pointer) { return reinterpret_cast<CuPointer>(pointer); }

// An initialised fake, with the first device's context current.
class FakeCudaTest : public ::testing::Test {
 protected:
  explicit FakeCudaTest(FakeCudaOptions options = {}) : fake_(std::move(options)), cuda_(fake_.driver()) {}
  void SetUp() override {
    ASSERT_EQ(cuda_.cuInit(0), kCuSuccess);
    ASSERT_EQ(cuda_.cuDevicePrimaryCtxRetain(&context_, 0), kCuSuccess);
    ASSERT_EQ(cuda_.cuCtxPushCurrent(context_), kCuSuccess);
  }
  CuPointer allocate(size_t bytes) {
    CuPointer pointer = 0;
    EXPECT_EQ(cuda_.cuMemAlloc(&pointer, bytes), kCuSuccess);
    return pointer;
  }
  CuStream stream() {
    CuStream stream = nullptr;
    EXPECT_EQ(cuda_.cuStreamCreateWithPriority(&stream, kCuStreamNonBlocking, 0), kCuSuccess);
    return stream;
  }
  CuEvent event(unsigned flags = kCuEventDisableTiming) {
    CuEvent event = nullptr;
    EXPECT_EQ(cuda_.cuEventCreate(&event, flags), kCuSuccess);
    return event;
  }
  CuFunction function(const char* name) {
    CuModule module = nullptr;
    EXPECT_EQ(cuda_.cuModuleLoadData(&module, "image"), kCuSuccess);
    CuFunction function = nullptr;
    EXPECT_EQ(cuda_.cuModuleGetFunction(&function, module, name), kCuSuccess);
    return function;
  }

  FakeCuda fake_;
  const Driver& cuda_;
  CuContext context_ = nullptr;
};

TEST_F(FakeCudaTest, every_entry_of_the_table_is_there) {
  const auto* words = reinterpret_cast<void* const*>(&cuda_);
  for (size_t i = 0; i < sizeof(Driver) / sizeof(void*); ++i) EXPECT_NE(words[i], nullptr) << "entry " << i;
}

TEST_F(FakeCudaTest, copies_move_bytes_in_order) {
  const CuPointer device = allocate(4096);
  const CuStream one = stream();
  std::vector<char> host(4096, 'h'), back(4096);
  EXPECT_NE(static_cast<char>(*at(device)), 0) << "device memory is not zero at first";
  EXPECT_EQ(cuda_.cuMemcpyAsync(device, of(host.data()), 4096, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuMemsetD8Async(device + 5, 'x', 1, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuMemcpyAsync(of(back.data()), device, 4096, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuStreamSynchronize(one), kCuSuccess);
  EXPECT_EQ(back[4], 'h');
  EXPECT_EQ(back[5], 'x');
  EXPECT_EQ(fake_.copied_bytes(), 8192U);
}

TEST_F(FakeCudaTest, kernels_run_with_the_parameters_of_their_launch) {
  fake_.add_kernel("fill", {sizeof(CuPointer), sizeof(int)}, [](const FakeLaunch& launch) -> CuResult {
    const auto to = launch.parameter<CuPointer>(0);
    if (!launch.reaches(at(to), launch.grid.x * launch.block.x, true)) return kCuIllegalAddress;
    std::memset(at(to), launch.parameter<int>(1), launch.grid.x * launch.block.x);
    return kCuSuccess;
  });
  const CuStream one = stream();
  fake_.hold(one);
  CuPointer to = allocate(256);
  const CuPointer first = to;
  int value = 'k';
  void* parameters[] = {&to, &value};
  EXPECT_EQ(cuda_.cuLaunchKernel(function("fill"), 2, 1, 1, 128, 1, 1, 0, one, parameters, nullptr), kCuSuccess);
  to = 0, value = 0;  // the launch has copies
  EXPECT_EQ(fake_.launches("fill"), 0U);
  fake_.release(one);
  EXPECT_EQ(cuda_.cuStreamSynchronize(one), kCuSuccess);
  EXPECT_EQ(static_cast<char>(*at(first + 255)), 'k');
  EXPECT_EQ(fake_.launches("fill"), 1U);
  CuFunction unknown = nullptr;
  CuModule module = nullptr;
  EXPECT_EQ(cuda_.cuModuleLoadData(&module, "image"), kCuSuccess);
  EXPECT_EQ(cuda_.cuModuleGetFunction(&unknown, module, "drain"), kCuNotFound);
  EXPECT_EQ(cuda_.cuLaunchKernel(function("fill"), 2, 1, 1, 2048, 1, 1, 0, one, parameters, nullptr), kCuInvalidValue);
}

TEST_F(FakeCudaTest, a_stream_waits_for_what_an_event_was_then) {
  const CuStream one = stream(), two = stream();
  const CuPointer device = allocate(2);
  const CuEvent never = event(), recorded = event();
  EXPECT_EQ(cuda_.cuStreamWaitEvent(two, never, 0), kCuSuccess);  // not recorded: nothing to wait for
  fake_.hold(one);
  EXPECT_EQ(cuda_.cuMemsetD8Async(device, 'a', 1, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuEventRecord(recorded, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuEventQuery(never), kCuSuccess);
  EXPECT_EQ(cuda_.cuEventQuery(recorded), kCuNotReady);
  EXPECT_EQ(cuda_.cuStreamWaitEvent(two, recorded, 0), kCuSuccess);
  EXPECT_EQ(cuda_.cuMemcpyAsync(device + 1, device, 1, two), kCuSuccess);
  EXPECT_FALSE(fake_.idle(two));
  fake_.release(one);
  EXPECT_EQ(cuda_.cuStreamSynchronize(two), kCuSuccess);
  EXPECT_EQ(static_cast<char>(*at(device + 1)), 'a');
  EXPECT_EQ(cuda_.cuEventQuery(recorded), kCuSuccess);
  EXPECT_EQ(cuda_.cuEventSynchronize(recorded), kCuSuccess);
}

TEST_F(FakeCudaTest, a_stream_waits_for_a_value_alone_and_another_raises_it) {
  const CuStream one = stream(), two = stream(), third = stream();
  const CuPointer word = allocate(8), mark = allocate(1);
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word)).store(3);
  EXPECT_EQ(cuda_.cuStreamWaitValue64(one, word, 5, kCuWaitValueGeq), kCuSuccess);
  EXPECT_EQ(cuda_.cuMemsetD8Async(mark, 'w', 1, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuStreamWriteValue64(two, word, 4, 0), kCuSuccess);
  EXPECT_EQ(cuda_.cuStreamSynchronize(two), kCuSuccess);
  EXPECT_EQ(cuda_.cuStreamSynchronize(third), kCuSuccess);  // streams beside it make progress
  EXPECT_FALSE(fake_.idle(one));
  EXPECT_EQ(cuda_.cuStreamWriteValue64(two, word, 6, 0), kCuSuccess);
  EXPECT_EQ(cuda_.cuStreamSynchronize(one), kCuSuccess);
  EXPECT_EQ(static_cast<char>(*at(mark)), 'w');
  EXPECT_EQ(cuda_.cuStreamWaitValue64(one, word + 4, 5, kCuWaitValueGeq), kCuInvalidValue);
}

TEST_F(FakeCudaTest, what_reaches_too_far_ends_the_device) {
  const CuPointer device = allocate(100);
  const CuStream one = stream();
  std::vector<char> host(200);
  EXPECT_EQ(cuda_.cuMemcpyAsync(of(host.data()), device, 101, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuStreamSynchronize(one), kCuIllegalAddress);
  CuPointer more = 0;
  EXPECT_EQ(cuda_.cuMemAlloc(&more, 1), kCuIllegalAddress);  // and stays so
  EXPECT_EQ(cuda_.cuEventCreate(nullptr, 0), kCuIllegalAddress);
}

TEST_F(FakeCudaTest, freed_memory_is_not_reached) {
  const CuPointer device = allocate(100);
  EXPECT_TRUE(fake_.reaches(0, at(device), 100, true));
  EXPECT_EQ(cuda_.cuMemFree(device), kCuSuccess);
  EXPECT_FALSE(fake_.reaches(0, at(device), 100, true));
  EXPECT_EQ(cuda_.cuMemFree(device), kCuInvalidValue);
  const CuStream one = stream();
  char host = 0;
  EXPECT_EQ(cuda_.cuMemcpyAsync(of(&host), device, 1, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuStreamSynchronize(one), kCuIllegalAddress);
}

TEST_F(FakeCudaTest, host_memory_is_reached_once_registered) {
  void* const host = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(host, MAP_FAILED);
  EXPECT_FALSE(fake_.reaches(0, host, 8192, false));
  EXPECT_EQ(cuda_.cuMemHostRegister(host, 8192, kCuHostPortable | kCuHostDeviceMap), kCuSuccess);
  EXPECT_TRUE(fake_.reaches(0, host, 8192, true));
  EXPECT_EQ(cuda_.cuMemHostRegister(static_cast<char*>(host) + 4096, 4096, 0), kCuAlreadyRegistered);
  CuPointer device = 0;
  EXPECT_EQ(cuda_.cuMemHostGetDevicePointer(&device, host, 0), kCuSuccess);
  EXPECT_EQ(device, of(host));
  EXPECT_EQ(cuda_.cuMemHostUnregister(host), kCuSuccess);
  EXPECT_EQ(cuda_.cuMemHostUnregister(host), kCuNotRegistered);
  // Memory that may not be written must be registered as read-only.
  ASSERT_EQ(::mprotect(host, 8192, PROT_READ), 0);
  EXPECT_EQ(cuda_.cuMemHostRegister(host, 8192, 0), kCuInvalidValue);
  EXPECT_EQ(cuda_.cuMemHostRegister(host, 8192, kCuHostRegisterReadOnly), kCuSuccess);
  EXPECT_TRUE(fake_.reaches(0, host, 8192, false));
  EXPECT_FALSE(fake_.reaches(0, host, 8192, true));
  EXPECT_EQ(cuda_.cuMemHostUnregister(host), kCuSuccess);
  ::munmap(host, 8192);
}

TEST_F(FakeCudaTest, a_copy_stays_within_one_registration) {
  void* const host = ::mmap(nullptr, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(host, MAP_FAILED);
  auto* const bytes = static_cast<char*>(host);
  const CuPointer device = allocate(16384);
  const CuStream one = stream();
  EXPECT_EQ(cuda_.cuMemHostRegister(bytes + 4096, 4096, 0), kCuSuccess);
  EXPECT_EQ(cuda_.cuMemHostRegister(bytes + 8192, 4096, 0), kCuSuccess);
  EXPECT_EQ(cuda_.cuMemcpyAsync(device, of(bytes + 4096), 8192, one), kCuInvalidValue);
  EXPECT_EQ(cuda_.cuMemcpyAsync(of(bytes + 8000), device, 193, one), kCuInvalidValue);
  EXPECT_EQ(cuda_.cuMemcpyAsync(of(bytes), device, 4097, one), kCuInvalidValue) << "into a registered range";
  EXPECT_EQ(cuda_.cuMemcpyAsync(of(bytes + 8192), device, 4097, one), kCuInvalidValue) << "and out of one";
  EXPECT_EQ(cuda_.cuMemcpyAsync(of(bytes + 4096), device, 4096, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuMemcpyAsync(of(bytes), device, 4096, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuStreamSynchronize(one), kCuSuccess);
  EXPECT_EQ(cuda_.cuMemHostUnregister(bytes + 4096), kCuSuccess);
  EXPECT_EQ(cuda_.cuMemHostUnregister(bytes + 8192), kCuSuccess);
  ::munmap(host, 16384);
}

TEST_F(FakeCudaTest, faults_come_at_the_call_that_was_named) {
  fake_.fail("cuMemAlloc", 2, kCuOutOfMemory);
  CuPointer pointer = 0;
  EXPECT_EQ(cuda_.cuMemAlloc(&pointer, 1), kCuSuccess);
  EXPECT_EQ(cuda_.cuMemAlloc(&pointer, 1), kCuOutOfMemory);
  EXPECT_EQ(cuda_.cuMemAlloc(&pointer, 1), kCuSuccess);
  EXPECT_EQ(fake_.calls("cuMemAlloc"), 3U);
  EXPECT_EQ(cuda_.cuMemAlloc(&pointer, 2ULL << 30), kCuOutOfMemory);  // more than the device has
}

TEST_F(FakeCudaTest, a_lost_device_drops_what_it_had) {
  const CuStream one = stream();
  const CuPointer device = allocate(1);
  const CuEvent done = event();
  fake_.hold(one);
  EXPECT_EQ(cuda_.cuMemsetD8Async(device, 'l', 1, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuEventRecord(done, one), kCuSuccess);
  std::thread waits([&] {
    cuda_.cuCtxPushCurrent(context_);
    EXPECT_EQ(cuda_.cuEventSynchronize(done), kCuUncorrectableEcc);
  });
  fake_.lose(0, kCuUncorrectableEcc);
  waits.join();
  EXPECT_EQ(cuda_.cuEventQuery(done), kCuUncorrectableEcc);
  EXPECT_NE(static_cast<char>(*at(device)), 'l');
}

TEST_F(FakeCudaTest, a_destroyed_context_takes_its_memory_along) {
  const CuStream one = stream();
  const CuPointer device = allocate(64);
  fake_.destroy_context(0);
  EXPECT_FALSE(fake_.reaches(0, at(device), 64, false));
  CuPointer more = 0;
  EXPECT_EQ(cuda_.cuMemAlloc(&more, 1), kCuContextDestroyed);
  CuContext again = nullptr;
  EXPECT_EQ(cuda_.cuDevicePrimaryCtxRetain(&again, 0), kCuSuccess);
  EXPECT_NE(again, context_);
  EXPECT_EQ(cuda_.cuCtxPushCurrent(again), kCuSuccess);
  EXPECT_EQ(cuda_.cuStreamSynchronize(one), kCuContextDestroyed);  // of the destroyed context
}

TEST_F(FakeCudaTest, a_context_must_be_current) {
  CuContext popped = nullptr;
  EXPECT_EQ(cuda_.cuCtxPopCurrent(&popped), kCuSuccess);
  EXPECT_EQ(popped, context_);
  CuPointer pointer = 0;
  EXPECT_EQ(cuda_.cuMemAlloc(&pointer, 1), kCuInvalidContext);
  EXPECT_EQ(cuda_.cuCtxPopCurrent(&popped), kCuInvalidContext);
}

TEST_F(FakeCudaTest, pointers_tell_what_they_are) {
  const CuPointer device = fake_.allocate_in_pieces(0, 4096, 3);
  int ordinal = -1;
  unsigned type = 0;
  CuPointer start = 0;
  size_t bytes = 0;
  EXPECT_EQ(cuda_.cuPointerGetAttribute(&ordinal, kCuPointerDeviceOrdinal, device + 5000), kCuSuccess);
  EXPECT_EQ(cuda_.cuPointerGetAttribute(&type, kCuPointerMemoryType, device + 5000), kCuSuccess);
  EXPECT_EQ(cuda_.cuPointerGetAttribute(&start, kCuPointerMappingStart, device + 5000), kCuSuccess);
  EXPECT_EQ(cuda_.cuPointerGetAttribute(&bytes, kCuPointerRangeSize, device + 5000), kCuSuccess);
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(type, kCuMemoryDevice);
  EXPECT_EQ(start, device + 4096);
  EXPECT_EQ(bytes, 3 * 4096U);
  EXPECT_EQ(cuda_.cuPointerGetAttribute(&ordinal, kCuPointerDeviceOrdinal, of(&ordinal)), kCuInvalidValue);
}

TEST_F(FakeCudaTest, memory_is_shared_by_handle) {
  const CuPointer device = allocate(64);
  CuIpcHandle handle{};
  EXPECT_EQ(cuda_.cuIpcGetMemHandle(&handle, device + 8), kCuSuccess);
  CuPointer other = 0;
  ASSERT_EQ(cuda_.cuIpcOpenMemHandle(&other, handle, kCuIpcLazyPeerAccess), kCuSuccess);
  EXPECT_NE(other, device);
  *at(other) = std::byte{'s'};
  EXPECT_EQ(*at(device), std::byte{'s'});
  EXPECT_EQ(cuda_.cuIpcCloseMemHandle(other), kCuSuccess);
  EXPECT_EQ(cuda_.cuIpcCloseMemHandle(other), kCuInvalidValue);
  EXPECT_EQ(cuda_.cuMemFree(device), kCuSuccess);
  EXPECT_NE(cuda_.cuIpcOpenMemHandle(&other, handle, kCuIpcLazyPeerAccess), kCuSuccess);
}

TEST_F(FakeCudaTest, events_are_shared_by_handle) {
  const CuEvent own = event(kCuEventDisableTiming | kCuEventInterprocess);
  CuIpcHandle handle{};
  EXPECT_EQ(cuda_.cuIpcGetEventHandle(&handle, own), kCuSuccess);
  CuEvent other = nullptr;
  ASSERT_EQ(cuda_.cuIpcOpenEventHandle(&other, handle), kCuSuccess);
  const CuStream one = stream(), two = stream();
  fake_.hold(one);
  EXPECT_EQ(cuda_.cuEventRecord(own, one), kCuSuccess);
  EXPECT_EQ(cuda_.cuEventQuery(other), kCuNotReady);
  EXPECT_EQ(cuda_.cuStreamWaitEvent(two, other, 0), kCuSuccess);
  EXPECT_FALSE(fake_.idle(two));
  fake_.release(one);
  EXPECT_EQ(cuda_.cuStreamSynchronize(two), kCuSuccess);
  EXPECT_EQ(cuda_.cuEventQuery(other), kCuSuccess);
}

class RefusesOwnHandles : public FakeCudaTest {
 protected:
  RefusesOwnHandles()
      : FakeCudaTest([] {
          FakeCudaOptions options;
          options.refuse_own_ipc = true;
          return options;
        }()) {}
};

TEST_F(RefusesOwnHandles, as_the_driver_does) {
  CuIpcHandle handle{};
  EXPECT_EQ(cuda_.cuIpcGetMemHandle(&handle, allocate(1)), kCuSuccess);
  CuPointer other = 0;
  EXPECT_EQ(cuda_.cuIpcOpenMemHandle(&other, handle, kCuIpcLazyPeerAccess), kCuInvalidContext);
}

TEST_F(FakeCudaTest, what_is_left_is_counted) {
  fake_.allocate(0, 10);  // the engine's
  const CuPointer device = allocate(20);
  const CuStream one = stream();
  const CuEvent done = event();
  FakeCuda::Left left = fake_.left(0);
  EXPECT_EQ(left.device_bytes, 20U);
  EXPECT_EQ(left.streams + left.events + left.contexts, 3U);
  EXPECT_EQ(cuda_.cuMemFree(device), kCuSuccess);
  EXPECT_EQ(cuda_.cuStreamDestroy(one), kCuSuccess);
  EXPECT_EQ(cuda_.cuEventDestroy(done), kCuSuccess);
  EXPECT_EQ(cuda_.cuDevicePrimaryCtxRelease(0), kCuSuccess);
  left = fake_.left(0);
  EXPECT_EQ(left.device_bytes + left.streams + left.events + left.contexts, 0U);
}

TEST(FakeCudaSettings, are_read_from_text) {
  FakeCuda fake;
  EXPECT_TRUE(fake.apply("devices=2,version=11080,major=7,minor=5,image=209,fail=cuInit:2:100"));
  EXPECT_FALSE(fake.apply("colour=7"));
  const Driver& cuda = fake.driver();
  EXPECT_EQ(cuda.cuInit(0), kCuSuccess);
  EXPECT_EQ(cuda.cuInit(0), kCuNoDevice);
  int count = 0, version = 0, major = 0;
  EXPECT_EQ(cuda.cuDeviceGetCount(&count), kCuSuccess);
  EXPECT_EQ(cuda.cuDriverGetVersion(&version), kCuSuccess);
  EXPECT_EQ(cuda.cuDeviceGetAttribute(&major, kCuMajor, 1), kCuSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(version, 11080);
  EXPECT_EQ(major, 7);
}

TEST(FakeCudaEnd, ends_streams_that_hang) {
  FakeCuda fake;
  const CuStream one = fake.make_stream(0);
  fake.hold(one);
  const Driver& cuda = fake.driver();
  EXPECT_EQ(cuda.cuInit(0), kCuSuccess);
  CuContext context = nullptr;
  EXPECT_EQ(cuda.cuDevicePrimaryCtxRetain(&context, 0), kCuSuccess);
  EXPECT_EQ(cuda.cuCtxPushCurrent(context), kCuSuccess);
  EXPECT_EQ(cuda.cuMemsetD8Async(fake.allocate(0, 8), 0, 8, one), kCuSuccess);
  EXPECT_FALSE(fake.idle(one));
}

}  // namespace
}  // namespace fake_cuda_test
