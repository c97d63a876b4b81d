#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/memory/peer_memory.h"
#include "device/kernels/kernel_image.h"
#include "doctor/finding.h"
#include "support/fake_cuda/fake_library.h"

namespace gpu_test {
namespace {

using namespace kvbm;
using doctor::Finding;
using doctor::State;
using kvbm::test::FakeLibrary;

class DoctorGpuTest : public ::testing::Test {
 protected:
  // The findings with the fake driver set up by `settings`.
  doctor::Findings probe(const std::string& name, const std::string& settings) {
    const FakeLibrary fake(dir_, name, settings);
    doctor::Findings out;
    doctor::probe_gpu(fake.path(), cufile_, out);
    return out;
  }
  static Finding found(const doctor::Findings& all, const std::string& name) {
    for (const Finding& finding : all) {
      if (finding.area == "gpu" && finding.name == name) return finding;
    }
    ADD_FAILURE() << "nothing is said of " << name;
    return {};
  }
  static void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  test::TempDir dir_;
  std::string cufile_ = "/nowhere/libcufile.so.0";
};

TEST_F(DoctorGpuTest, no_driver_is_absent_with_its_reason) {
  doctor::Findings all;
  doctor::probe_gpu("/nowhere/libcuda.so.1", {}, all);
  const Finding driver = found(all, "driver");
  EXPECT_EQ(driver.state, State::absent);
  expect_in(driver.value, "/nowhere/libcuda.so.1");
  EXPECT_FALSE(driver.advice.empty());
  const Finding kernels = found(all, "kernels");
  EXPECT_EQ(kernels.state, device::embedded_kernels().empty() ? State::absent : State::ok);
  expect_in(found(all, "direct storage").value, "no usable CUDA driver");
  // The named libcufile is probed although the driver is missing.
  all.clear();
  doctor::probe_gpu("/nowhere/libcuda.so.1", cufile_, all);
  EXPECT_EQ(found(all, "direct storage").state, State::absent);
  expect_in(found(all, "direct storage").value, cufile_);
}

TEST_F(DoctorGpuTest, an_old_driver_and_no_device_are_said) {
  expect_in(found(probe("old", "version=11080"), "driver").value, "speaks CUDA 11.8; kvbm needs 12.0");
  expect_in(found(probe("none", "devices=0"), "driver").value, "it sees no device");
}

TEST_F(DoctorGpuTest, what_network_cards_can_do_is_said_of_each_device) {
  doctor::Findings all = probe("can", "devices=2");
  EXPECT_EQ(found(all, "direct rdma 0").state, State::ok);
  expect_in(found(all, "direct rdma 1").value, "ordered");
  expect_in(found(probe("flushed", "ordering=0"), "direct rdma 0").value, "flushed");
  expect_in(found(probe("either", "dma_buf=1"), "direct rdma 0").advice, "used where");
  if (!has_peer_memory()) {
    const Finding neither = found(probe("neither", "dma_buf=0"), "direct rdma 0");
    EXPECT_EQ(neither.state, State::absent);
    expect_in(neither.advice, "nvidia_peermem");
    expect_in(found(probe("buffers", "dma_buf=1"), "direct rdma 0").value, "dma-buf");
  }
  all = probe("cannot", "direct=0");
  EXPECT_EQ(found(all, "direct rdma 0").state, State::absent);
  expect_in(found(all, "direct rdma 0").advice, "host memory");
}

TEST_F(DoctorGpuTest, of_a_driver_that_lacks_many_entries_three_are_named) {
  doctor::Findings out;
  doctor::probe_gpu(std::string(KVBM_TEST_MODULES) + "/libtest_cuda_lacks_entries.so", cufile_, out);
  const std::string said = found(out, "driver").value;
  expect_in(said, "lacks cuGetErrorName, ");
  expect_in(said, " more");
  EXPECT_LT(said.size(), 400U) << said;
}

TEST_F(DoctorGpuTest, each_device_is_described) {
  const doctor::Findings all = probe("two", "devices=2,version=12040,major=8,minor=9");
  expect_in(found(all, "driver").value, "CUDA 12.4");
  const Finding second = found(all, "device 1");
  EXPECT_EQ(second.state, State::ok) << second.advice;
  expect_in(second.value, "kvbm fake device, sm_89");
  expect_in(second.value, "16 multiprocessors, ffff:01:00.0");
  EXPECT_TRUE(second.advice.empty()) << second.advice;
}

TEST_F(DoctorGpuTest, a_device_that_cannot_be_used_says_why) {
  const Finding image = found(probe("image", "image=209,major=7,minor=0"), "device 0");
  EXPECT_EQ(image.state, State::limited);
  expect_in(image.advice, "device 0 is sm_70");
  const Finding memory = found(probe("memory", "fail=cuDevicePrimaryCtxRetain:1:2"), "device 0");
  EXPECT_EQ(memory.state, State::limited);
  expect_in(memory.advice, "CUDA_ERROR_OUT_OF_MEMORY");
}

TEST_F(DoctorGpuTest, a_build_without_kernels_says_so_of_itself_and_of_the_device) {
  if (!device::embedded_kernels().empty()) GTEST_SKIP() << "this build has kernels";
  const doctor::Findings all = probe("empty", "brings_kernels=0");
  EXPECT_EQ(found(all, "kernels").state, State::absent);
  EXPECT_EQ(found(all, "device 0").state, State::limited);
  expect_in(found(all, "device 0").advice, "built without its CUDA kernels");
}

TEST_F(DoctorGpuTest, direct_storage_is_there_or_only_copies_or_is_not) {
  expect_in(found(probe("without", ""), "direct storage").value, "/nowhere/libcufile.so.0");
  const char* const states[] = {"", "compatible=1", "open=5007"};
  Finding all[3];
  for (int i = 0; i < 3; ++i) {
    cufile_ = dir_.path() + "/libcufile" + std::to_string(i) + ".so";
    std::filesystem::copy_file(std::string(KVBM_TEST_MODULES) + "/libtest_cufile.so", cufile_);
    ::setenv("KVBM_FAKE_CUFILE", states[i], 1);
    all[i] = found(probe("with" + std::to_string(i), ""), "direct storage");
  }
  ::unsetenv("KVBM_FAKE_CUFILE");
  EXPECT_EQ(all[0].state, State::ok);
  expect_in(all[0].value, "nvidia-fs 2.20");
  EXPECT_EQ(all[1].state, State::limited);
  expect_in(all[1].value, "in compatibility mode");
  EXPECT_EQ(all[2].state, State::absent);
  expect_in(all[2].value, "cuFileDriverOpen says CU_FILE_PLATFORM_NOT_SUPPORTED (5007)");
}

TEST_F(DoctorGpuTest, one_connection_for_all_streams_is_warned_of) {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  const Finding finding = found(probe("narrow", ""), "connections");
  ::unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  EXPECT_EQ(finding.state, State::limited);
  expect_in(finding.advice, "set it to 2 or more");
}

TEST_F(DoctorGpuTest, launches_that_block_are_warned_of) {
  ::setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  const Finding finding = found(probe("blocking", ""), "launches");
  ::unsetenv("CUDA_LAUNCH_BLOCKING");
  EXPECT_EQ(finding.state, State::limited);
  expect_in(finding.value, "CUDA_LAUNCH_BLOCKING");
  expect_in(finding.advice, "wait_layers");
}

}  // namespace
}  // namespace gpu_test
