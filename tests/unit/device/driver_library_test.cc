#include "device/driver/driver_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/process/signal_keeper.h"
#include "device/context/device.h"
#include "support/fake_cuda/fake_library.h"

namespace driver_library_test {
namespace {

using namespace kvbm;
using namespace kvbm::device;
using kvbm::test::FakeLibrary;

std::string module(const std::string& name) { return std::string(KVBM_TEST_MODULES) + "/lib" + name + ".so"; }

std::string refusal(const std::string& path) {
  const auto library = driver_library(path);
  EXPECT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), Code::unsupported);
  return library.status().message();
}

class DriverLibraryTest : public ::testing::Test {
 protected:
  test::TempDir dir_;
};

TEST_F(DriverLibraryTest, a_library_that_is_not_there_is_named) {
  const std::string text = refusal("/nowhere/libcuda.so.1");
  EXPECT_NE(text.find("/nowhere/libcuda.so.1"), std::string::npos) << text;
}

TEST_F(DriverLibraryTest, a_library_that_is_no_driver_is_refused) {
  EXPECT_NE(refusal(module("test_cuda_no_version")).find("is no CUDA driver"), std::string::npos);
}

TEST_F(DriverLibraryTest, missing_entries_are_named) {
  const std::string text = refusal(module("test_cuda_lacks_entries"));
  EXPECT_NE(text.find("says CUDA 12.8 and lacks cuGetErrorName"), std::string::npos) << text;
  const size_t names = text.find("lacks ");
  ASSERT_NE(names, std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin() + static_cast<std::ptrdiff_t>(names), text.end(), ','), 2) << text;
  // The library has two of the entries.
  EXPECT_GT(std::strtoul(text.c_str() + text.find(" and ", names) + 5, nullptr, 10), 30U) << text;
  EXPECT_NE(text.find(" more"), std::string::npos) << text;
}

TEST_F(DriverLibraryTest, an_old_driver_is_told_by_its_version_alone) {
  const std::string text = refusal(module("test_cuda_old"));
  EXPECT_NE(text.find("speaks CUDA 11.4; kvbm needs 12.0"), std::string::npos) << text;
  EXPECT_EQ(text.find("lacks"), std::string::npos) << text;
}

TEST_F(DriverLibraryTest, refusals_of_the_driver_say_how_to_go_on) {
  struct Case {
    const char* settings;
    const char* says;
  };
  int i = 0;
  for (const Case& c : {Case{"devices=0", "CUDA_ERROR_NO_DEVICE (100): it sees no device"},
                        Case{"init=803", "libcuda does not fit the kernel module"},
                        Case{"init=999", "the kernel module may not be loaded"}, Case{"init=34", "for linking only"},
                        Case{"init=802", "nvidia-fabricmanager"}}) {
    const FakeLibrary fake(dir_, "refuses" + std::to_string(i++), c.settings);
    const std::string text = refusal(fake.path());
    EXPECT_NE(text.find(c.says), std::string::npos) << text;
    ::unsetenv("KVBM_FAKE_CUDA");
    EXPECT_EQ(refusal(fake.path()), text) << "it does not begin later";
  }
}

TEST_F(DriverLibraryTest, loads_once_and_opens_a_device) {
  const FakeLibrary fake(dir_, "good", "devices=2,version=12040");
  const auto first = driver_library(fake.path()), second = driver_library(fake.path());
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first.value(), second.value());
  EXPECT_EQ(first.value()->version, 12040);
  EXPECT_EQ(first.value()->path, fake.path());
  EXPECT_TRUE(driver_is_loaded());
  const auto all = list_devices(first.value()->driver);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all.value().size(), 2U);
  EXPECT_EQ(all.value()[1].name, "kvbm fake device");
  const auto device = Device::open(first.value()->driver, 1, nullptr);
  EXPECT_TRUE(device.ok()) << device.status().message();
}

TEST_F(DriverLibraryTest, signal_handlers_of_the_host_stay) {
  std::array<SignalAction, SignalAction::kSignals + 1> before;
  for (int i = 1; i <= SignalAction::kSignals; ++i) ASSERT_TRUE(before[static_cast<size_t>(i)].read(i));
  ::setenv("KVBM_FAKE_CUDA_HANDLERS", "1", 1);
  const FakeLibrary fake(dir_, "handlers", "");
  EXPECT_TRUE(driver_library(fake.path()).ok());
  ::unsetenv("KVBM_FAKE_CUDA_HANDLERS");
  for (int i = 1; i <= SignalAction::kSignals; ++i) {
    SignalAction now;
    ASSERT_TRUE(now.read(i));
    EXPECT_EQ(now, before[static_cast<size_t>(i)]) << "signal " << i;
  }
}

TEST_F(DriverLibraryTest, every_entry_of_the_table_is_filled) {
  const FakeLibrary fake(dir_, "filled", "");
  const auto library = driver_library(fake.path());
  ASSERT_TRUE(library.ok());
  void* const handle = ::dlopen(fake.path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(handle, nullptr);
  for (const TableEntry& entry : driver_symbols()) {
    void* filled = nullptr;
    std::memcpy(&filled, reinterpret_cast<const char*>(&library.value()->driver) + entry.offset, sizeof filled);
    EXPECT_EQ(filled, ::dlsym(handle, entry.symbol)) << entry.symbol;
    EXPECT_NE(filled, nullptr) << entry.symbol;
  }
  EXPECT_NE(library.value()->driver.own_kernels, nullptr);
  ::dlclose(handle);
}

TEST(DriverVersionTest, is_written_as_people_know_it) {
  EXPECT_EQ(cuda_version_text(12000), "12.0");
  EXPECT_EQ(cuda_version_text(11080), "11.8");
  EXPECT_EQ(cuda_version_text(13010), "13.1");
}

}  // namespace
}  // namespace driver_library_test
