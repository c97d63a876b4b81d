// `kvbm bench gpu` as a user runs it: without a device it says why; with the fake driver, which is as slow as can be,
// it gives its rows.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "codec/lossless/zstd_leaf.h"
#include "support/run_command.h"

namespace gpu_command_test {
namespace {

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;

const std::string kFake = std::string(" --cuda-library '") + KVBM_FAKE_DRIVER + "'";

TEST(GpuCommand, without_a_driver_says_so_in_one_line_and_a_hint) {
  const Ran ran = run("bench gpu --cuda-library /nonexistent/libcuda.so");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_TRUE(contains(ran.text, "kvbm: error: no usable CUDA driver: /nonexistent/libcuda.so")) << ran.text;
  EXPECT_TRUE(contains(ran.text, "hint: ")) << ran.text;
}

TEST(GpuCommand, says_what_the_driver_and_the_device_lack) {
  const struct {
    const char* driver;
    const char* arguments;
    const char* said;
  } cases[] = {{"devices=0", "", "sees no device"},
               {"version=11080", "", "speaks CUDA 11.8"},
               {"devices=1", " --device 3", "there is no device 3; there is only device 0"},
               {"fail=cuMemHostRegister:1:2", "", "cuMemHostRegister"}};
  for (const auto& c : cases) {
    const Ran ran =
        run("bench gpu --bytes 4MiB" + kFake + c.arguments, " 2>&1", std::string("KVBM_FAKE_CUDA=") + c.driver);
    EXPECT_EQ(ran.exit_code, 1) << c.driver << "\n" << ran.text;
    EXPECT_TRUE(contains(ran.text, c.said)) << c.driver << "\n" << ran.text;
  }
}

TEST(GpuCommand, refuses_sizes_that_it_cannot_cut_into_pages) {
  for (const char* bytes : {"5MiB", "1KiB", "0", "many", "4M"}) {
    const Ran ran = run(std::string("bench gpu --bytes ") + bytes + kFake);
    EXPECT_EQ(ran.exit_code, 2) << bytes << "\n" << ran.text;
  }
}

TEST(GpuCommand, says_how_much_is_too_little_and_what_does_not_fit) {
  for (const char* bytes : {"0", "1KiB"}) {
    EXPECT_TRUE(contains(run(std::string("bench gpu --bytes ") + bytes + kFake).text, "at least 4 MiB")) << bytes;
  }
  EXPECT_TRUE(contains(run("bench gpu --bytes 5MiB" + kFake).text, "is not a multiple of 4 MiB"));
}

TEST(GpuCommand, takes_the_driver_from_the_environment_as_doctor_does) {
  const Ran ran = run("bench gpu", " 2>&1", "KVBM_DEVICE_LIBRARY=/nonexistent/libcuda.so");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_TRUE(contains(ran.text, "/nonexistent/libcuda.so")) << ran.text;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
TEST(GpuCommand, json_is_skipped_here) { GTEST_SKIP() << "emulated kernels under a sanitizer take minutes"; }
#else
// Returns the texts of all fields of that name.
std::set<std::string> values_of(const std::string& json, const std::string& field) {
  std::set<std::string> out;
  const std::string before = "\"" + field + "\": \"";
  for (size_t at = json.find(before); at != std::string::npos; at = json.find(before, at)) {
    at += before.size();
    out.insert(json.substr(at, json.find('"', at) - at));
  }
  return out;
}

TEST(GpuCommand, names_the_error_of_the_driver_that_ended_a_transfer) {
  const struct {
    const char* driver;
    const char* said;
  } cases[] = {{"fail=cuLaunchKernel:3:719", "CUDA_ERROR_LAUNCH_FAILED"},
               {"fail=cuLaunchKernel:3:1", "CUDA_ERROR_INVALID_VALUE"}};
  for (const auto& c : cases) {
    const Ran ran =
        run("bench gpu --rounds 1 --bytes 4MiB" + kFake, " 2>&1", std::string("KVBM_FAKE_CUDA=") + c.driver);
    EXPECT_EQ(ran.exit_code, 1) << ran.text;
    EXPECT_TRUE(contains(ran.text, "a transfer failed: gather: ")) << ran.text;
    EXPECT_TRUE(contains(ran.text, c.said)) << ran.text;
  }
}

// A thousand rounds of a fake that copies 30 MB a second would take an hour: each figure gets one, and that is said.
TEST(GpuCommand, gives_json_in_the_time_that_it_has_and_says_on_what_it_measured) {
  const Ran ran = run("bench gpu --json --rounds 1000 --seconds 0 --bytes 4MiB" + kFake);
  const int figures = kvbm::codec::has_zstd() ? 58 : 56;
  EXPECT_TRUE(contains(ran.text, std::to_string(figures) + " figures had fewer rounds than --rounds 1000")) << ran.text;
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_TRUE(contains(ran.text, "kvbm: note: measured on kvbm fake device")) << ran.text;
  std::set<std::string> wanted;
  for (const char* direction : {"gpu.gather.", "gpu.scatter."}) {
    for (const char* page :
         {"4KiB", "8KiB", "16KiB", "32KiB", "64KiB", "128KiB", "256KiB", "512KiB", "1MiB", "2MiB", "32KiB_of_256B"}) {
      wanted.insert(std::string(direction) + page);
    }
    for (const char* page : {"4KiB.", "64KiB.", "1MiB."}) {
      for (const char* way : {"mapped", "staged", "straight"}) wanted.insert(std::string(direction) + page + way);
    }
  }
  for (const char* blocks : {"1", "8", "64"}) {
    wanted.insert(std::string("gpu.store_latency.") + blocks);
    wanted.insert(std::string("gpu.load_latency.") + blocks);
  }
  for (const char* name : {"device_gather", "device_scatter", "hash", "store_beside_gemm", "gather_beside_gemm",
                           "load_coded.default", "load_coded.int8"}) {
    wanted.insert(std::string("gpu.") + name);
  }
  for (const char* mode : {"default", "int8", "zstd"}) {
    if (mode == std::string("zstd") && !kvbm::codec::has_zstd()) continue;
    wanted.insert(std::string("gpu.encode.") + mode);
    wanted.insert(std::string("gpu.decode.") + mode);
  }
  EXPECT_EQ(values_of(ran.text, "name"), wanted);
  // Counts the figures that have a limit.
  size_t ratios = 0;
  for (size_t at = ran.text.find("\"ratio\": "); at != std::string::npos; at = ran.text.find("\"ratio\": ", at + 1))
    ++ratios;
  EXPECT_EQ(ratios, wanted.size());
  // Figures also have a highest possible ratio, except those with an unknown part of work by the processor.
  const size_t unknown = kvbm::codec::has_zstd() ? 5 : 3;  // encode.*, decode.zstd, gather_beside_gemm
  size_t bounds = 0;
  for (size_t at = ran.text.find("\"bound\": "); at != std::string::npos; at = ran.text.find("\"bound\": ", at + 1))
    ++bounds;
  EXPECT_EQ(bounds, wanted.size() - unknown);
  EXPECT_TRUE(contains(ran.text, "\"bound_name\": \"")) << ran.text;
}
#endif

}  // namespace
}  // namespace gpu_command_test
