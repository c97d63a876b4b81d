// `kvbm doctor` with a driver library that is not NVIDIA's: from the command line, from the environment.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "support/run_command.h"

namespace doctor_test {
namespace {

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;

const char* const kLibrary = KVBM_TEST_MODULES "/libtest_cuda_driver.so";

TEST(DoctorCommand, tells_of_the_driver_that_is_named) {
  const Ran ran = run(std::string("doctor --json --cuda-library ") + kLibrary);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_TRUE(contains(ran.text, "\"CUDA 13.0, ")) << ran.text;
  EXPECT_TRUE(contains(ran.text, "\"kvbm fake device, sm_90")) << ran.text;
}

TEST(DoctorCommand, takes_the_option_from_the_environment) {
  const Ran ran =
      run("doctor --json", " 2>&1", std::string("KVBM_FAKE_CUDA=devices=0 KVBM_DEVICE_LIBRARY=") + kLibrary);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_TRUE(contains(ran.text, "it sees no device")) << ran.text;
}

TEST(DoctorCommand, a_driver_that_is_not_there_is_no_failure) {
  const Ran ran = run("doctor --cuda-library /nowhere/libcuda.so.1");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_TRUE(contains(ran.text, "/nowhere/libcuda.so.1")) << ran.text;
}

TEST(DoctorCommand, no_line_is_longer_than_100_columns) {
  const Ran ran = run(std::string("doctor --cuda-library ") + kLibrary);
  EXPECT_EQ(ran.exit_code, 0);
  std::istringstream lines(ran.text);
  for (std::string line; std::getline(lines, line);) {
    const auto width = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    EXPECT_LE(width, 100) << line;
  }
  EXPECT_TRUE(contains(ran.text, "what follows")) << ran.text;
}

}  // namespace
}  // namespace doctor_test
