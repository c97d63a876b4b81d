// Device of the suites of tests/device: device 0 of the driver, or of the library that KVBMTEST_CUDA names. Without a
// device their cases are skipped, with the reason; with KVBMTEST_CUDA they fail instead.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/crypto/random.h"
#include "device/context/device.h"
#include "device/driver/driver_library.h"

namespace kvbm::test {

// Device memory of a test. Its first byte is `offset` behind an address that the driver aligned.
class DeviceBytes {
 public:
  DeviceBytes(device::Device& device, uint64_t bytes, uint64_t offset = 0)
      : device_(device), offset_(offset), bytes_(bytes) {
    const device::Device::Scope scope(device_);
    const Status s = device_.check(device_.driver().cuMemAlloc(&start_, bytes + offset), "cuMemAlloc");
    EXPECT_TRUE(s.ok()) << s.message();
  }
  ~DeviceBytes() {
    const device::Device::Scope scope(device_);
    if (start_ != 0) (void)device_.driver().cuMemFree(start_);
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  [[nodiscard]] device::CuPointer at(uint64_t i = 0) const noexcept { return start_ + offset_ + i; }
  [[nodiscard]] std::byte* pointer(uint64_t i = 0) const noexcept { return reinterpret_cast<std::byte*>(at(i)); }
  [[nodiscard]] uint64_t bytes() const noexcept { return bytes_; }
  void upload(ConstBytes from) { copy(at(), reinterpret_cast<device::CuPointer>(from.data()), from.size()); }
  [[nodiscard]] std::vector<std::byte> download() const {
    std::vector<std::byte> out(bytes_);
    copy(reinterpret_cast<device::CuPointer>(out.data()), at(), bytes_);
    return out;
  }

 private:
  void copy(device::CuPointer to, device::CuPointer from, uint64_t bytes) const {
    const device::Device::Scope scope(device_);
    Status s = device_.check(device_.driver().cuMemcpyAsync(to, from, bytes, nullptr), "cuMemcpyAsync");
    if (s.ok()) s = device_.check(device_.driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    EXPECT_TRUE(s.ok()) << s.message();
  }
  device::Device& device_;
  device::CuPointer start_ = 0;
  const uint64_t offset_, bytes_;
};

inline std::vector<std::byte> random_bytes(SeededRandom& random, uint64_t n) {
  std::vector<std::byte> out(n);
  random.fill(out);
  return out;
}

// A device and the resources of one test on it.
class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const named = std::getenv("KVBMTEST_CUDA");
    const auto library = device::driver_library(named != nullptr ? named : "");
    if (!library.ok()) return leave_out(library.status(), named);
    auto opened = device::Device::open(library.value()->driver, 0, nullptr);
    if (!opened.ok()) return leave_out(opened.status(), named);
    device_ = std::move(opened).value();
  }

  [[nodiscard]] device::Device& device() const { return *device_; }
  [[nodiscard]] const std::shared_ptr<device::Device>& shared() const { return device_; }
  [[nodiscard]] const device::Driver& driver() const { return device_->driver(); }

 private:
  static void leave_out(const Status& status, const char* named) {
    if (named != nullptr || status.code() != Code::unsupported) FAIL() << status.message();
    GTEST_SKIP() << status.message();
  }
  std::shared_ptr<device::Device> device_;
};

}  // namespace kvbm::test
