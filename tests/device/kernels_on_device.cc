// The tests of the kernels (tests/unit/device/*_kernel_test.cc), built a second time, launch them on a device.
//
// Their jobs hold addresses of memory that the cases took by `new`. So here `new` takes from one region that is registered
// with the device, which then reads and writes it under the same addresses. Device memory proper: transfers_test.cc.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "device/device.h"
#include "device/driver_library.h"
#include "device/kernel_image.h"
#include "support/cuda_emulation/kernels.h"

namespace kvbm::test {
namespace {

using device::CuResult;

constexpr size_t kRegionBytes = 1ULL << 30;
constexpr size_t kHead = 64;  // before each piece: which class it is of; as much as the largest alignment that is asked for
constexpr size_t kClasses = 31;
// All but what asks the emulation to look at every access.
constexpr const char* kOfDevices = "*-GatherKernel.touches_nothing_beyond_the_leaf";

// Pieces of powers of two, used again when they are freed. Neighbours never share a piece, so a stray access lands in
// what nobody compares or in what somebody does.
class Region {
 public:
  void* take(size_t bytes) {
    const auto size_class = static_cast<size_t>(std::bit_width(std::bit_ceil(bytes + kHead)) - 1);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (begin_ == nullptr) map();
    std::byte* piece = nullptr;
    if (size_class < kClasses && free_[size_class] != nullptr) {
      piece = static_cast<std::byte*>(free_[size_class]);
      free_[size_class] = *reinterpret_cast<void**>(piece + kHead);
    } else if (size_class < kClasses && begin_ != nullptr && used_ + (size_t{1} << size_class) <= kRegionBytes) {
      piece = begin_ + used_;
      used_ += size_t{1} << size_class;
    }
    if (piece == nullptr) return nullptr;
    *reinterpret_cast<size_t*>(piece) = size_class;
    return piece + kHead;
  }
  void give(void* memory) {
    if (memory == nullptr) return;
    std::byte* const piece = static_cast<std::byte*>(memory) - kHead;
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t size_class = *reinterpret_cast<size_t*>(piece);
    *static_cast<void**>(memory) = free_[size_class];
    free_[size_class] = piece;
  }
  [[nodiscard]] void* begin() const { return begin_; }

 private:
  void map() {
    void* const memory = ::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) begin_ = static_cast<std::byte*>(memory);
  }
  std::mutex mutex_;
  std::byte* begin_ = nullptr;
  size_t used_ = 0;
  void* free_[kClasses] = {};
};

Region& region() {
  alignas(Region) static std::byte memory[sizeof(Region)];  // never destroyed: what is freed last is freed into it
  static Region* const one = new (memory) Region();
  return *one;
}

// The device, its module, and the region registered with it, for all cases.
class Machine {
 public:
  // Empty: it is ready. Else why not, and whether that is no more than that there is no device.
  struct Opened {
    std::string why_not;
    bool absent = false;
  };
  Opened open() {
    const char* const named = std::getenv("KVBMTEST_CUDA");
    const auto library = device::driver_library(named != nullptr ? named : "");
    if (!library.ok()) return refused(library.status(), named);
    driver_ = &library.value()->driver;
    auto opened = device::Device::open(*driver_, 0, nullptr);
    if (!opened.ok()) return refused(opened.status(), named);
    device_ = std::move(opened).value();
    const device::Device::Scope scope(*device_);
    CuResult result = driver_->cuMemHostRegister(region().begin(), kRegionBytes, device::kCuHostPortable | device::kCuHostDeviceMap);
    if (result != device::kCuSuccess) return {"the region was not registered: " + name_of(result)};
    device::CuPointer there = 0;
    result = driver_->cuMemHostGetDevicePointer(&there, region().begin(), 0);
    if (result != device::kCuSuccess) return {"the region has no address on the device: " + name_of(result)};
    if (there != reinterpret_cast<device::CuPointer>(region().begin())) {
      return {"this device has other addresses for the host's memory", true};
    }
    result = driver_->cuModuleLoadData(&module_, device::kernel_image(*driver_));
    if (result != device::kCuSuccess) return {"the image was not loaded: " + name_of(result)};
    return {};
  }
  void close() {
    if (device_ == nullptr) return;
    {
      const device::Device::Scope scope(*device_);
      if (module_ != nullptr) (void)driver_->cuModuleUnload(module_);
      (void)driver_->cuMemHostUnregister(region().begin());
    }
    device_.reset();
  }

  emulation::Outcome launch(const std::string& name, const emulation::LaunchShape& shape, void** parameters) {
    using Kind = emulation::Outcome::Kind;
    const device::Device::Scope scope(*device_);
    device::CuFunction function = nullptr;
    CuResult result = driver_->cuModuleGetFunction(&function, module_, name.c_str());
    if (result != device::kCuSuccess) return {Kind::invalid_launch, "the image has no kernel " + name};
    result = driver_->cuLaunchKernel(function, shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
                                     shape.block.z, static_cast<unsigned>(shape.shared_bytes), nullptr, parameters, nullptr);
    if (result == device::kCuSuccess) result = driver_->cuStreamSynchronize(nullptr);
    if (result == device::kCuSuccess) return {};
    return {result == device::kCuIllegalAddress ? Kind::illegal_address : Kind::trapped, name + ": " + name_of(result)};
  }

 private:
  static Opened refused(const Status& status, const char* named) {
    return {status.message(), named == nullptr && status.code() == Code::unsupported};
  }
  [[nodiscard]] std::string name_of(CuResult result) const {
    const char* text = nullptr;
    (void)driver_->cuGetErrorName(result, &text);
    return text != nullptr ? text : std::to_string(result);
  }
  const device::Driver* driver_ = nullptr;
  std::shared_ptr<device::Device> device_;
  device::CuModule module_ = nullptr;
};

Machine& machine() {
  static Machine* const one = new Machine();  // the driver may be gone before what is destroyed last
  return *one;
}

// The one case of a program that has no device.
class WithoutDevice : public ::testing::Test {
 public:
  explicit WithoutDevice(Machine::Opened opened) : opened_(std::move(opened)) {}
  void TestBody() override {
    if (!opened_.absent) FAIL() << opened_.why_not;
    GTEST_SKIP() << opened_.why_not;
  }

 private:
  const Machine::Opened opened_;
};

}  // namespace

void* take_or_throw(size_t bytes) {
  void* const memory = region().take(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void give_back(void* memory) { region().give(memory); }

emulation::Outcome launch_here(const std::string& name, const emulation::LaunchShape& shape, void** parameters) {
  return machine().launch(name, shape, parameters);
}

}  // namespace kvbm::test

kvbm::emulation::Outcome kvbm::emulation::launch_on_device(const std::string& name, const LaunchShape& shape, void** parameters) {
  return test::launch_here(name, shape, parameters);
}

int main(int argc, char** argv) {
  using namespace kvbm::test;
  ::testing::InitGoogleTest(&argc, argv);
  const Machine::Opened opened = machine().open();
  if (GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, kOfDevices);
  if (!opened.why_not.empty()) {
    ::testing::RegisterTest("KernelsOnDevice", "need_a_device", nullptr, nullptr, __FILE__, __LINE__,
                            [opened]() -> ::testing::Test* { return new WithoutDevice(opened); });
    GTEST_FLAG_SET(filter, "KernelsOnDevice.need_a_device");
  }
  const int failed = RUN_ALL_TESTS();
  machine().close();
  return failed;
}

void* operator new(size_t bytes) { return kvbm::test::take_or_throw(bytes); }
void* operator new(size_t bytes, std::align_val_t) { return kvbm::test::take_or_throw(bytes); }
void operator delete(void* memory) noexcept { kvbm::test::give_back(memory); }
void operator delete(void* memory, size_t) noexcept { kvbm::test::give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { kvbm::test::give_back(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { kvbm::test::give_back(memory); }
