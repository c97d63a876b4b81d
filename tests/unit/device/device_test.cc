#include "device/context/device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "device/driver/driver_error.h"
#include "device/kernels/kernel_image.h"
#include "device/kernels/kernel_set.h"
#include "support/cuda_emulation/fake_kernels.h"
#include "support/fake_cuda/fake_cuda.h"
#include "support/fake_cuda/log_lines.h"

namespace device_test {
namespace {

using namespace kvbm;
using namespace kvbm::device;
using kvbm::test::FakeCuda;
using kvbm::test::FakeCudaOptions;
using kvbm::test::FakeDevice;
using kvbm::test::FakeLaunch;
using kvbm::test::LogLines;

std::shared_ptr<Device> open_device(FakeCuda& fake, int ordinal = 0, Log* log = nullptr) {
  auto device = Device::open(fake.driver(), ordinal, log);
  EXPECT_TRUE(device.ok()) << device.status().message();
  return device.ok() ? device.value() : nullptr;
}

FakeCudaOptions two_devices() {
  FakeCudaOptions options;
  options.devices.resize(2);
  options.devices[1].name = "kvbm fake device, the second";
  options.devices[1].major = 12;
  return options;
}

TEST(DeviceTest, tells_what_the_driver_shows) {
  FakeCuda fake(two_devices());
  const auto all = list_devices(fake.driver());
  ASSERT_TRUE(all.ok()) << all.status().message();
  ASSERT_EQ(all.value().size(), 2U);
  const DeviceFacts& second = all.value()[1];
  EXPECT_EQ(second.ordinal, 1);
  EXPECT_EQ(second.name, "kvbm fake device, the second");
  EXPECT_EQ(second.pci, "ffff:01:00.0");
  EXPECT_EQ(second.major, 12);
  EXPECT_EQ(second.multiprocessors, 16);
  EXPECT_EQ(second.memory_bytes, 1ULL << 30);
  EXPECT_EQ(second.driver_version, 13000);
  EXPECT_TRUE(second.maps_host);
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRetain"), 0U) << "looking makes no context";
}

TEST(DeviceTest, no_device_is_said) {
  FakeCudaOptions options;
  options.devices.clear();
  FakeCuda fake(options);
  const auto all = list_devices(fake.driver());
  EXPECT_EQ(all.status().code(), Code::unsupported);
  EXPECT_NE(all.status().message().find("CUDA_ERROR_NO_DEVICE"), std::string::npos) << all.status().message();
  EXPECT_EQ(Device::open(fake.driver(), 0, nullptr).status().code(), Code::unsupported);
}

TEST(DeviceTest, an_old_driver_is_refused_by_its_version) {
  FakeCudaOptions options;
  options.version = 11080;
  FakeCuda fake(options);
  const auto device = Device::open(fake.driver(), 0, nullptr);
  EXPECT_EQ(device.status().code(), Code::unsupported);
  EXPECT_NE(device.status().message().find("CUDA 11.8; kvbm needs 12.0"), std::string::npos)
      << device.status().message();
}

TEST(DeviceTest, an_ordinal_that_is_not_there_is_refused) {
  FakeCuda fake(two_devices());
  for (const int ordinal : {-1, 2, 1000}) {
    const auto device = Device::open(fake.driver(), ordinal, nullptr);
    EXPECT_EQ(device.status().code(), Code::unsupported);
    EXPECT_NE(device.status().message().find("there are devices 0 to 1"), std::string::npos)
        << device.status().message();
  }
}

TEST(DeviceTest, a_build_without_kernels_says_so) {
  FakeCudaOptions options;
  options.brings_kernels = false;
  FakeCuda fake(options);
  const auto device = Device::open(fake.driver(), 0, nullptr);
  if (embedded_kernels().empty()) {
    EXPECT_EQ(device.status().code(), Code::unsupported);
    EXPECT_NE(device.status().message().find("built without its CUDA kernels"), std::string::npos)
        << device.status().message();
  } else {
    EXPECT_TRUE(device.ok()) << device.status().message();
  }
}

TEST(DeviceTest, no_kernels_for_the_device_names_both) {
  FakeCudaOptions options;
  options.devices[0].major = 7;
  options.image = kCuNoBinaryForGpu;
  FakeCuda fake(options);
  const auto device = Device::open(fake.driver(), 0, nullptr);
  EXPECT_EQ(device.status().code(), Code::unsupported);
  const std::string text = device.status().message();
  EXPECT_NE(text.find("device 0 is sm_70"), std::string::npos) << text;
  EXPECT_NE(text.find("this libkvbm has kernels for"), std::string::npos) << text;
  EXPECT_NE(text.find("CUDA_ERROR_NO_BINARY_FOR_GPU"), std::string::npos) << text;
  EXPECT_EQ(fake.left(0).contexts, 0U);
}

// A driver that is older than the toolkit may not read the image at all.
TEST(DeviceTest, a_driver_that_takes_the_kernels_for_no_image_is_refused_with_both_versions) {
  FakeCudaOptions options;
  options.image = kCuInvalidImage;
  options.version = 12020;
  for (const bool brings_kernels : {true, false}) {
    if (!brings_kernels && embedded_kernels().empty()) continue;
    options.brings_kernels = brings_kernels;
    FakeCuda fake(options);
    const auto device = Device::open(fake.driver(), 0, nullptr);
    EXPECT_EQ(device.status().code(), Code::unsupported);
    const std::string text = device.status().message();
    EXPECT_NE(text.find("a driver of CUDA 12.2"), std::string::npos) << text;
    EXPECT_NE(text.find("CUDA_ERROR_INVALID_IMAGE"), std::string::npos) << text;
    EXPECT_EQ(text.find("built with CUDA " + std::string(embedded_toolkit())) != std::string::npos, !brings_kernels)
        << text;
    EXPECT_LT(text.size(), 504U) << "does not fit kvbm_error_t";
    EXPECT_EQ(fake.left(0).contexts, 0U);
  }
}

TEST(DeviceTest, a_device_of_another_process_is_refused) {
  FakeCuda fake;
  fake.fail("cuDevicePrimaryCtxRetain", 1, 46);  // CUDA_ERROR_DEVICE_UNAVAILABLE
  const auto device = Device::open(fake.driver(), 0, nullptr);
  EXPECT_EQ(device.status().code(), Code::unsupported);
  EXPECT_NE(device.status().message().find("exclusive"), std::string::npos) << device.status().message();
}

TEST(DeviceTest, a_device_that_does_not_map_host_memory_is_refused) {
  FakeCudaOptions options;
  options.devices[0].maps_host = false;
  FakeCuda fake(options);
  EXPECT_EQ(Device::open(fake.driver(), 0, nullptr).status().code(), Code::unsupported);
}

TEST(DeviceTest, every_failure_of_opening_gives_back_the_context) {
  for (const char* entry : {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet",
                            "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent", "cuModuleLoadData"}) {
    FakeCuda fake;
    fake.fail(entry, 1, kCuOutOfMemory);
    EXPECT_FALSE(Device::open(fake.driver(), 0, nullptr).ok()) << entry;
    const FakeCuda::Left left = fake.left(0);
    EXPECT_EQ(left.contexts + left.modules, 0U) << entry;
  }
}

TEST(DeviceTest, gives_back_what_it_took) {
  FakeCuda fake;
  fake.allocate(0, 1);  // of the engine
  auto device = open_device(fake);
  EXPECT_EQ(fake.left(0).contexts, 1U);
  EXPECT_EQ(fake.left(0).modules, 1U);
  device.reset();
  EXPECT_EQ(fake.left(0).contexts, 0U);
  EXPECT_EQ(fake.left(0).modules, 0U);
}

TEST(DeviceTest, a_scope_gives_back_the_callers_context) {
  FakeCuda fake(two_devices());
  const auto first = open_device(fake, 0), second = open_device(fake, 1);
  const Driver& cuda = fake.driver();
  ASSERT_EQ(cuda.cuCtxPushCurrent(second->context()), kCuSuccess);
  CuDevice current = -1;
  {
    const Device::Scope scope(*first);
    EXPECT_TRUE(scope.entered());
    EXPECT_EQ(cuda.cuCtxGetDevice(&current), kCuSuccess);
    EXPECT_EQ(current, 0);
  }
  EXPECT_EQ(cuda.cuCtxGetDevice(&current), kCuSuccess);
  EXPECT_EQ(current, 1);
  CuContext popped = nullptr;
  EXPECT_EQ(cuda.cuCtxPopCurrent(&popped), kCuSuccess);
  EXPECT_EQ(cuda.cuCtxGetDevice(&current), kCuInvalidContext) << "none was current before";
}

TEST(DeviceTest, is_lost_once_and_says_so_once) {
  FakeCuda fake;
  LogLines lines;
  Log log;
  lines.attach(log);
  const auto device = open_device(fake, 0, &log);
  EXPECT_TRUE(device->check(kCuSuccess, "cuMemAlloc").ok());
  EXPECT_EQ(device->check(kCuOutOfMemory, "cuMemAlloc").code(), Code::no_memory);
  EXPECT_FALSE(device->is_lost());
  EXPECT_EQ(device->lost_why(), "");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(device->check(kCuIllegalAddress, "cuMemcpyAsync").code(), Code::tier_disabled);
      EXPECT_EQ(device->lost_why(), "cuMemcpyAsync: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(device->is_lost());
  ASSERT_EQ(lines.count(), 1U);
  EXPECT_NE(lines.line(0).find("cuMemcpyAsync"), std::string::npos) << lines.line(0);
  EXPECT_NE(lines.line(0).find("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), std::string::npos) << lines.line(0);
  // Its results are not trusted any more, not even success.
  EXPECT_EQ(device->check(kCuSuccess, "cuMemAlloc").code(), Code::tier_disabled);
  device->lose("something else", kCuSuccess);  // the first reason stays
  EXPECT_EQ(device->lost_why(), "cuMemcpyAsync: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  const Device::Scope scope(*device);
  EXPECT_FALSE(scope.entered());
}

TEST(DeviceTest, a_reason_that_is_none_of_the_drivers_is_said_in_words) {
  FakeCuda fake;
  const auto device = open_device(fake);
  device->lose("a transfer had no end within device.lost_after", kCuSuccess);
  EXPECT_EQ(device->lost_why(), "a transfer had no end within device.lost_after");
}

TEST(DeviceTest, an_integrated_device_is_known_as_one) {
  FakeCudaOptions options;
  options.devices.resize(2);
  options.devices[1].integrated = true;
  FakeCuda fake(options);
  EXPECT_FALSE(open_device(fake, 0)->facts().integrated);
  EXPECT_TRUE(open_device(fake, 1)->facts().integrated);
}

TEST(DeviceTest, says_whether_streams_wait_for_words) {
  FakeCudaOptions options = two_devices();
  options.devices[1].stream_memory_64 = false;
  FakeCuda fake(options);
  EXPECT_TRUE(open_device(fake, 0)->check_waits().ok());
  const Status refused = open_device(fake, 1)->check_waits();
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_NE(refused.message().find("device 1 or its driver has no 64-bit stream memory operations"), std::string::npos)
      << refused.message();
}

// The variable is read when the device is opened, as the driver does.
TEST(DeviceTest, launches_that_block_are_told_by_the_environment) {
  FakeCuda fake;
  for (const char* text : {"1", "0", ""}) {
    ::setenv("CUDA_LAUNCH_BLOCKING", text, 1);
    const auto device = open_device(fake);
    ::unsetenv("CUDA_LAUNCH_BLOCKING");
    const Status waits = device->check_waits();
    EXPECT_EQ(waits.code(), *text == '1' ? Code::unsupported : Code::ok) << text;
    EXPECT_EQ(waits.message().find("CUDA_LAUNCH_BLOCKING is set") != std::string::npos, *text == '1')
        << waits.message();
  }
}

TEST(DeviceTest, a_destroyed_context_is_a_lost_device) {
  FakeCuda fake;
  const auto device = open_device(fake);
  fake.destroy_context(0);
  CuPointer pointer = 0;
  {
    const Device::Scope scope(*device);
    EXPECT_EQ(device->check(fake.driver().cuMemAlloc(&pointer, 1), "cuMemAlloc").code(), Code::tier_disabled);
  }
  EXPECT_TRUE(device->is_lost());
}

TEST(DeviceTest, a_context_that_cannot_be_entered_is_a_lost_device) {
  FakeCuda fake;
  const auto device = open_device(fake);
  fake.fail("cuCtxPushCurrent", 1, kCuInvalidContext);
  const Device::Scope scope(*device);
  EXPECT_FALSE(scope.entered());
  EXPECT_TRUE(device->is_lost());
}

// A message has the name, code, the driver's words and the remedy, and not only the name of a call.
TEST(DriverErrorTest, every_refusal_says_which_error_and_what_to_do) {
  const FakeCuda fake;
  for (const CuResult result :
       {1,   2,   3,   4,   46,  100, 101, 200, 201, 209, 214, 220, 226, 400, 500, 700, 701, 702, 709,
        710, 712, 713, 714, 715, 716, 717, 718, 719, 721, 800, 801, 803, 806, 807, 810, 911, 999}) {
    const std::string said = driver_status(fake.driver(), result, "cuEventCreate").message();
    EXPECT_EQ(said.find("cuEventCreate: "), 0U) << said;
    const size_t code = said.find("(" + std::to_string(result) + "): ");
    ASSERT_NE(code, std::string::npos) << said;
    EXPECT_GT(code, std::string("cuEventCreate: ").size()) << said;
    EXPECT_GT(said.size(), code + 30) << said;
    EXPECT_LT(said.size(), 400U) << said;  // kvbm_error_t has 504
  }
  EXPECT_NE(driver_error_text(fake.driver(), kCuNotPermitted).find("ulimit -l"), std::string::npos);
}

TEST(DeviceTest, calls_on_a_lost_device_say_what_lost_it_and_not_their_own_name_alone) {
  FakeCuda fake;
  const auto device = open_device(fake);
  device->lose("cuMemcpyAsync", kCuIllegalAddress);
  for (const CuResult result : {kCuSuccess, kCuInvalidValue, kCuOutOfMemory}) {
    EXPECT_EQ(device->check(result, "cuEventCreate").message(),
              "the device is lost: cuMemcpyAsync: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  }
}

TEST(DriverErrorTest, sticky_errors_disable_and_others_do_not) {
  const FakeCuda fake;
  for (const CuResult sticky :
       {4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 806, 807, 810, 911, 999}) {
    EXPECT_TRUE(is_sticky(sticky)) << sticky;
    EXPECT_EQ(driver_status(fake.driver(), sticky, "x").code(), Code::tier_disabled) << sticky;
  }
  for (const CuResult passing : {0, 1, 2, 3, 100, 101, 200, 201, 209, 400, 500, 600, 701, 712, 713, 800, 801}) {
    EXPECT_FALSE(is_sticky(passing)) << passing;
    EXPECT_NE(driver_status(fake.driver(), passing, "x").code(), Code::tier_disabled) << passing;
  }
  EXPECT_EQ(
      driver_error_text(fake.driver(), 12345),
      "an error that the driver has no name for (12345): a fault of kvbm's or of the driver: report it with this line");
  EXPECT_EQ(driver_status(fake.driver(), kCuNotPermitted, "cuMemHostRegister").code(), Code::not_permitted);
}

TEST(KernelSetTest, launches_by_name_with_its_parameters) {
  FakeCuda fake;
  uint32_t warps_seen = 0, threads_seen = 0;
  fake.add_kernel("kvbm_gather_leaves", {8, 4, 4, 8}, [&](const FakeLaunch& launch) -> CuResult {
    warps_seen = launch.parameter<uint32_t>(2);
    threads_seen = launch.block.x * launch.grid.x;
    return kCuSuccess;
  });
  const auto device = open_device(fake);
  EXPECT_TRUE(device->kernels().has(Kernel::gather_leaves));
  EXPECT_FALSE(device->kernels().has(Kernel::quantize));
  const CuStream stream = fake.make_stream(0);
  const Device::Scope scope(*device);
  EXPECT_EQ(device->kernels().launch_leaves(Kernel::gather_leaves, stream, 3, 0, 100, 16), kCuSuccess);
  fake.synchronize(stream);
  EXPECT_EQ(warps_seen, 16U);
  EXPECT_EQ(threads_seen, 1536U);
  // No more blocks than jobs.
  EXPECT_EQ(device->kernels().launch_leaves(Kernel::gather_leaves, stream, 3, 0, 2, 16), kCuSuccess);
  fake.synchronize(stream);
  EXPECT_EQ(threads_seen, 1024U);
  EXPECT_EQ(device->kernels().launch_coded(Kernel::quantize, stream, 1, 0, 1, 0, 0), kCuNotFound);
}

TEST(KernelSetTest, is_loaded_whole_before_anything_is_launched) {
  FakeCuda fake;
  for (const char* name : {"kvbm_gather_leaves", "kvbm_poison_leaves"}) {
    fake.add_kernel(name, {}, [](const FakeLaunch&) -> CuResult { return kCuSuccess; });
  }
  (void)open_device(fake);
  EXPECT_EQ(fake.calls("cuFuncLoad"), 2U);
  fake.fail("cuFuncLoad", 2, kCuOutOfMemory);
  EXPECT_EQ(Device::open(fake.driver(), 0, nullptr).status().code(), Code::no_memory);
  EXPECT_EQ(fake.left(0).modules + fake.left(0).contexts, 0U);
  Driver older = fake.driver();
  older.cuFuncLoad = nullptr;
  EXPECT_TRUE(Device::open(older, 0, nullptr).ok());
}

// Before CUDA 12.4 a launch loads a kernel. A launch without jobs does so first, so that no launch with jobs waits for
// it.
TEST(KernelSetTest, of_an_older_driver_each_kernel_is_launched_once_without_jobs) {
  FakeCuda fake;
  kvbm::test::add_emulated_kernels(fake);
  Driver older = fake.driver();
  older.cuFuncLoad = nullptr;
  const auto device = Device::open(older, 0, nullptr);
  ASSERT_TRUE(device.ok()) << device.status().message();
  for (size_t i = 0; i < kKernels; ++i) {
    EXPECT_EQ(fake.launches(kernel_name(static_cast<Kernel>(i))), 1U) << kernel_name(static_cast<Kernel>(i));
  }
  EXPECT_EQ(fake.left(0).streams, 0U);
  EXPECT_FALSE(device.value()->is_lost());
  for (const char* entry : {"cuStreamCreateWithPriority", "cuLaunchKernel", "cuStreamSynchronize", "cuStreamDestroy"}) {
    fake.fail(entry, 1, kCuOutOfMemory);
    EXPECT_EQ(Device::open(older, 0, nullptr).status().code(), Code::no_memory) << entry;
  }
}

TEST(KernelSetTest, a_kernel_that_fails_loses_the_device) {
  FakeCuda fake;
  fake.add_kernel("kvbm_poison_leaves", {8, 4, 4}, [](const FakeLaunch&) -> CuResult { return kCuSuccess; });
  const auto device = open_device(fake);
  const CuStream stream = fake.make_stream(0);
  fake.fail_kernel("kvbm_poison_leaves", 2, kCuLaunchFailed);
  const Device::Scope scope(*device);
  const auto run = [&] {
    EXPECT_EQ(device->kernels().launch_leaves(Kernel::poison_leaves, stream, 1, 0, 1, 1), kCuSuccess);
    return device->check(fake.driver().cuStreamSynchronize(stream), "cuStreamSynchronize").code();
  };
  EXPECT_EQ(run(), Code::ok);
  EXPECT_EQ(run(), Code::tier_disabled);
  EXPECT_TRUE(device->is_lost());
}

TEST(KernelImageTest, architectures_are_read_from_a_fatbin) {
  // One entry of machine code for 90 with 8 bytes, one of PTX for 80 with 4.
  std::vector<std::byte> fatbin(16 + 64 + 8 + 64 + 4);
  store_le<uint32_t>(fatbin.data(), 0xBA55ED50);
  store_le<uint16_t>(fatbin.data() + 6, 16);
  store_le<uint64_t>(fatbin.data() + 8, fatbin.size() - 16);
  const auto entry = [&](size_t at, uint16_t kind, uint64_t bytes, uint32_t architecture) {
    store_le<uint16_t>(fatbin.data() + at, kind);
    store_le<uint32_t>(fatbin.data() + at + 4, 64);
    store_le<uint64_t>(fatbin.data() + at + 8, bytes);
    store_le<uint32_t>(fatbin.data() + at + 28, architecture);
  };
  entry(16, 2, 8, 90);
  entry(16 + 72, 1, 4, 80);
  EXPECT_EQ(architectures_of(fatbin), "sm_90 and PTX for compute_80");
  for (size_t cut = 0; cut < fatbin.size(); ++cut) {
    EXPECT_EQ(architectures_of(ConstBytes(fatbin).first(cut)), "") << cut;
  }
  entry(16, 2, 1 << 20, 90);  // longer than the whole fatbin
  EXPECT_EQ(architectures_of(fatbin), "");
  EXPECT_EQ(architectures_of({}), "");
}

TEST(KernelImageTest, the_embedded_one_is_read_or_empty) {
  if (embedded_kernels().empty()) GTEST_SKIP() << "this build has no nvcc, so no kernels are embedded";
  EXPECT_NE(architectures_of(embedded_kernels()).find("sm_80"), std::string::npos)
      << architectures_of(embedded_kernels());
}

}  // namespace
}  // namespace device_test
